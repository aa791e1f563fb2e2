package passkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
)

// kinds are the kinds of keys that are taken, by the numbers that COSE gives to their signatures: those first that are to be made where a device
// has the choice.
var kinds = []struct {
	algorithm int
	of        func(public any) (verify func(message, signature []byte) bool)
}{
	{-7, func(public any) func(message, signature []byte) bool { // ES256
		key, ok := public.(*ecdsa.PublicKey)
		if !ok || key.Curve != elliptic.P256() {
			return nil
		}
		return func(message, signature []byte) bool {
			sum := sha256.Sum256(message)
			return ecdsa.VerifyASN1(key, sum[:], signature)
		}
	}},
	{-8, func(public any) func(message, signature []byte) bool { // EdDSA
		key, ok := public.(ed25519.PublicKey)
		if !ok {
			return nil
		}
		return func(message, signature []byte) bool { return ed25519.Verify(key, message, signature) }
	}},
	{-257, func(public any) func(message, signature []byte) bool { // RS256
		key, ok := public.(*rsa.PublicKey)
		if !ok || key.N.BitLen() < 2048 || key.N.BitLen() > 4096 || key.E != 65537 {
			return nil
		}
		return func(message, signature []byte) bool {
			sum := sha256.Sum256(message)
			return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil
		}
	}},
}

// verifier tells whether signatures are those of the owner of a public key, or is Refused.
func verifier(public []byte) (verify func(message, signature []byte) bool, err error) {
	key, err := x509.ParsePKIXPublicKey(public)
	if err != nil {
		return nil, refuse("publicKey is none")
	}
	for _, kind := range kinds {
		if verify = kind.of(key); verify != nil {
			return verify, nil
		}
	}
	return nil, refuse("the key is of no kind that was asked for")
}
