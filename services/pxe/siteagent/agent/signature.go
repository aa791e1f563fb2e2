package agent

import (
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// SignatureNamespace is the namespace of an agent's signatures, which ssh-keygen -Y verify asks for.
const SignatureNamespace = "ironplane-report"

const (
	signatureMagic   = "SSHSIG"
	signatureVersion = 1
	signatureHash    = "sha512"
	signatureWidth   = 70
)

// signedBlob is what a signature signs, and signatureBlob is the signature: both are of OpenSSH's PROTOCOL.sshsig, without the magic.
type signedBlob struct {
	Namespace, Reserved, Hash string
	Digest                    []byte
}

type signatureBlob struct {
	Version                   uint32
	PublicKey                 []byte
	Namespace, Reserved, Hash string
	Signature                 []byte
}

// Sign signs a text with the agent's host key, in the format of ssh-keygen -Y sign.
func Sign(key ssh.Signer, text []byte) (string, error) {
	digest := sha512.Sum512(text)
	signed := ssh.Marshal(signedBlob{Namespace: SignatureNamespace, Hash: signatureHash, Digest: digest[:]})
	signature, err := key.Sign(rand.Reader, append([]byte(signatureMagic), signed...))
	if err != nil {
		return "", fmt.Errorf("sign a report: %w", err)
	}
	blob := ssh.Marshal(signatureBlob{Version: signatureVersion, PublicKey: key.PublicKey().Marshal(), Namespace: SignatureNamespace,
		Hash: signatureHash, Signature: ssh.Marshal(signature)})
	lines := base64.StdEncoding.EncodeToString(append([]byte(signatureMagic), blob...))
	var armored strings.Builder
	armored.WriteString("-----BEGIN SSH SIGNATURE-----\n")
	for len(lines) > 0 {
		n := min(len(lines), signatureWidth)
		armored.WriteString(lines[:n] + "\n")
		lines = lines[n:]
	}
	armored.WriteString("-----END SSH SIGNATURE-----\n")
	return armored.String(), nil
}
