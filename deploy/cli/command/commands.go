package command

import "github.com/ironplane/ironplane/pkg/client/operations"

// Command is how the command line sends an operation, for programs that print commands.
type Command struct {
	Noun    string            `json:"noun"`
	Verb    string            `json:"verb"`
	IfMatch bool              `json:"ifMatch,omitempty"` // whether it has --if-match
	Secrets map[string]string `json:"secrets,omitempty"` // the flags of members that cannot be arguments, by the names of members
}

// Commands returns the commands of all operations whose body is JSON or missing, by the operations' ids.
func Commands() map[string]Command {
	all := map[string]Command{}
	for _, o := range operations.All().Operations {
		if o.RawBody != "" {
			continue
		}
		c := Command{Noun: o.Noun, Verb: o.Verb, IfMatch: o.IfMatch}
		for _, f := range bodyFlags(o) {
			if f.Secret {
				if c.Secrets == nil {
					c.Secrets = map[string]string{}
				}
				c.Secrets[f.Name] = f.flag
			}
		}
		all[o.ID] = c
	}
	return all
}
