package audit

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// plain is the sentence of most types.
const plain = "{items} {was} {action}."

// sentences has the sentence of each type of change, by the first words and the last word of the type. {1}, {2} and {3} are the
// targets of the change, and {items} is the first one with the number of the others. What stands in brackets is left out if its
// target is missing.
var sentences = []struct{ kinds, actions, text string }{
	{"admin client entity field forward.gateway group integration part port-speed webhook", "created edited deleted", plain},
	{"auth.key auth.provider email.template", "created edited deleted", plain},
	{"pxe.boot-script pxe.dhcp pxe.driver pxe.file pxe.iso pxe.preseed pxe.profile pxe.shell", "created edited deleted", plain},
	{"auth.verify.method pxe.iso.edition system.setting system.theme", "edited", plain},
	{"pxe.discovery", "deleted", plain},
	{"pxe.file", "synced", plain},
	{"system.job", "cancelled retried", plain},
	{"system.maintenance", "began ended", "Maintenance {action}."},
	{"system.maintenance", "edited", "The reason of the maintenance was edited."},

	{"admin.permission integration.permission", "edited", "The permissions of {1} were edited."},
	{"admin.password client.password", "refused", "A wrong password for {1} was refused."},
	{"admin.password-reset client.password-reset", "asked", "A link that resets the password of {1} was requested."},
	{"admin.password-reset client.password-reset", "used", "The password of {1} was reset by a link."},
	{"admin.verify_code client.verify_code", "confirmed", "A code of {1} was confirmed."},
	{"admin.verify_code client.verify_code", "refused", "A wrong code for {1} was refused."},
	{"admin.recovery_codes client.recovery_codes", "renewed", "The recovery codes of {1} were renewed."},
	{"admin.authenticators client.authenticators", "removed", "The authenticators of {1} were removed."},
	{"auth.login", "refused", "Logins with unknown names were refused."},
	{"auth.openid", "refused", "A sign-in by {1} was refused."},
	{"auth.session", "began", "A session of {1} began."},
	{"auth.session", "ended", "The other sessions of {1} were ended."},
	{"auth.session", "deleted", "A session was ended."},
	{"auth.verify.auth", "created edited deleted verified", "{1}[ of {2}] was {action}."},
	{"auth.verify.auth.code", "created deleted", "{1}[ of {2}] was {action}."},

	{"client", "emailed", "A mail to {1} was queued."},
	{"client", "suspended", plain},
	{"client", "unsuspended", "A suspension of {items} was lifted."},
	{"client.adoption", "asked", "{1} was asked whether an integration may adopt it."},
	{"client.sub", "created deleted", "A sub link[ to {2}] was {action}."},
	{"client.super", "created deleted", "A super link[ to {2}] was {action}."},
	{"client.parent", "deleted", "A sub link[ from {2}] was deleted."},
	{"client.granter", "deleted", "A super link[ from {2}] was deleted."},

	{"entity", "allocated released", plain},
	{"entity", "freed", "The quarantine of {items} ended."},
	{"entity", "given returned", "{1} was {action}[ by {3}][ to {2}]."},
	{"field.value", "created edited deleted", "{1}[ of {2}] was {action}."},

	{"pxe.install", "created cancelled retried deleted", "{1}[ for {2}] was {action}."},
	{"pxe.install", "booted", "The machine of {1}[ for {2}] got its boot script."},
	{"pxe.install", "began", "The installer of {1}[ for {2}] began."},
	{"pxe.install", "installed", "{1}[ for {2}] succeeded."},
	{"pxe.install", "failed", "{1}[ for {2}] failed."},

	{"email.message", "queued sent", "{1}[ to {2}] was {action}."},
	{"email.message", "failed", "{1}[ to {2}] could not be sent."},
	{"event", "skipped", "{1} was left out of the log."},
	{"event", "restored", "{1} belongs to a restored service."},
	{"http.ssl", "edited issued deleted", "The certificate was {action}."},
	{"license", "refreshed", "The license was refreshed."},
	{"log", "cut", "Old items of the log were deleted."},
	{"request", "refused", "A request was refused."},
	{"webhook", "tested", "A test was sent to {1}."},
	{"webhook", "replayed", "Events were sent to {1} again."},
}

// texts has the sentences by type.
var texts = func() map[string]string {
	all := map[string]string{}
	for _, s := range sentences {
		for kind := range strings.FieldsSeq(s.kinds) {
			for action := range strings.FieldsSeq(s.actions) {
				all[kind+"."+action] = s.text
			}
		}
	}
	return all
}()

// HasSentence reports whether a type of change has a sentence in the log.
func HasSentence(eventType string) bool { return texts[eventType] != "" }

// Actions returns the last words of all types of changes, in order.
func Actions() (all []string) {
	for eventType := range texts {
		all = append(all, eventType[strings.LastIndex(eventType, ".")+1:])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

var (
	optional    = regexp.MustCompile(`\[[^\]]*\]`)
	placeholder = regexp.MustCompile(`\{[1-3]\}`)
)

// DescribeTargets returns the sentence of a change of this type. Targets that its reader must not know are zero.
func DescribeTargets(eventType string, targets Targets) string {
	kind, action := eventType, ""
	if i := strings.LastIndex(eventType, "."); i >= 0 {
		kind, action = eventType[:i], eventType[i+1:]
	}
	name := func(n int) string {
		if n >= len(targets) {
			return ""
		}
		return targets[n].String()
	}
	text := texts[eventType]
	if text == "" {
		text = plain
	}
	text = optional.ReplaceAllStringFunc(text, func(part string) string {
		if n := placeholder.FindString(part); name(int(n[1]-'1')) == "" {
			return ""
		}
		return part[1 : len(part)-1]
	})
	anything := strings.ReplaceAll(kind, ".", " ")
	first, items, was := cmp.Or(name(0), anything), anything, "was"
	shown := slices.DeleteFunc(slices.Clone(targets), func(t Target) bool { return t == (Target{}) })
	if len(shown) > 0 {
		items = shown[0].String()
	}
	if more := len(shown) - 1; more > 0 {
		items, was = fmt.Sprintf("%s and %d more", items, more), "were"
	}
	text = strings.NewReplacer("{1}", first, "{2}", name(1), "{3}", name(2), "{items}", items, "{was}", was, "{action}", action).Replace(text)
	return strings.ToUpper(text[:1]) + text[1:]
}

const referenceHead = `# Log items

The types of the items in the [log](api.md#log), which are also those of [webhooks](../do/webhooks.md), each with its sentence in "desc".
… is an item that the sentence names.

| Type | Sentence |
|---|---|
`

// Reference returns the page of the reference that lists the types of changes with their sentences.
func Reference() string {
	var page strings.Builder
	page.WriteString(referenceHead)
	names := strings.NewReplacer("{1}", "…", "{2}", "…", "{3}", "…", "{items}", "…", "{was}", "was", "[", "", "]", "")
	for _, eventType := range slices.Sorted(maps.Keys(texts)) {
		text := strings.ReplaceAll(texts[eventType], "{action}", eventType[strings.LastIndex(eventType, ".")+1:])
		fmt.Fprintf(&page, "| `%s` | %s |\n", eventType, names.Replace(text))
	}
	return page.String()
}
