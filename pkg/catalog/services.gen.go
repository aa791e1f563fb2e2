// Code generated from product.Services by make services. DO NOT EDIT.

package catalog

import "github.com/ironplane/ironplane/pkg/auth/permission"

// Services are all services, in the order of their names. A test of a service that is not one of the product's adds it before
// anything runs.
var Services = []Service{
	{
		Name: "clients",
		Paths: []string{
			"client",
		},
		Topics: map[string][]permission.Permission{
			"client": {permission.UsersClients},
		},
	},
	{
		Name: "identity",
		Paths: []string{
			"admin",
			"auth",
			"browser-details",
			"client/*/verify",
		},
		Topics: map[string][]permission.Permission{
			"admin": {permission.UsersAdmins},
			"auth":  {permission.UsersAdmins, permission.UsersClients},
		},
	},
	{
		Name: "network",
		Paths: []string{
			"entity",
			"field",
			"forward",
			"group",
			"port-speed",
		},
		Topics: map[string][]permission.Permission{
			"entity":      {permission.NetworkEntities},
			"field":       {permission.SystemSettings},
			"field.value": {permission.UsersClients, permission.NetworkEntities, permission.NetworkGroups, permission.ServerSettings},
			"forward":     {permission.NetworkForward},
			"group":       {permission.NetworkGroups},
			"port-speed":  {permission.NetworkSwitches},
		},
	},
	{
		Name: "pxe",
		Paths: []string{
			"pxe",
		},
		Topics: map[string][]permission.Permission{
			"pxe":         {permission.PXESettings},
			"pxe.install": {permission.PXEInstalls},
		},
	},
	{
		Name: "system",
		Paths: []string{
			".well-known",
			"email",
			"event",
			"http",
			"integration",
			"license",
			"log",
			"package",
			"part",
			"setting-group",
			"system",
			"todo",
			"webhook",
		},
		Topics: map[string][]permission.Permission{
			"email":       {permission.SystemEmails},
			"http":        {permission.SystemSettings},
			"integration": {},
			"license":     {permission.SystemSettings},
			"log":         {permission.SystemLogs},
			"part":        {permission.ServerSettings},
			"system":      {permission.SystemSettings},
			"webhook":     {},
		},
	},
}
