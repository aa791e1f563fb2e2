package gateway

// ownerServices says which service knows what an owner of this type may do.
var ownerServices = map[string]string{"admin": "identity", "client": "clients", "integration": "system"}
