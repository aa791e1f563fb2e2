package account_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/trustelem/zxcvbn/frequency"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
)

// checkStrength checks a password of Ilse Maschtein, a customer of a site.
func checkStrength(password string) (message string) {
	site := settings.Values{settings.SiteName.Slug: "Ostwind Hosting", settings.ClientURL.Slug: "https://kunden.wolkenburg.example"}
	var invalid problem.Fields
	account.CheckStrength(secret.New(password), site, []string{"Ilse", "Maschtein-Müller", "ilse@kegelklub.example"}, &invalid)
	if len(invalid) == 0 {
		return ""
	}
	return invalid[0].Message
}

// One word or name with digits and marks around it is too weak, whatever the word is, and so are listed passwords.
func TestGuessablePasswords(t *testing.T) {
	t.Parallel()
	const word, names, listed = "one word", "of its account or of this installation", "well-known example"
	for password, want := range map[string]string{
		"correcthorsebatterystaple": listed, "Correct horse battery staple!": listed, "CorrectHorseBatteryStaple1": listed,
		"Winter2025!!": word, "Bundesliga2026": word, "W1nter2025!!": "", "#Sommer2026!!!!": word, "2026-Dezember-2026": word,
		"Xylophonist99!": word, "Donaudampfschiff1": word, "!!Zwetschgenkuchen": word, "Contraseña2026": word,
		"Пароль2026!!": word, "SOMMERREGEN26": word, "wIntersonne26!": word, "Fruehling26Fruehling": word, "密码 2026 7281": word,
		"wachtwoordvrij1": word, "thequickbrownfox": word, "retniW!2025!": "",
		"Ostwind-2026!!": names, "ostwindhosting26": names, "Wolkenburg2026": names, "OstwindWolkenburg": names,
		"Maschtein20261": names, "IlseMaschtein26": names, "ilse.müller.2026": names, "Kegelklub!2026": names,
		"Ostwind-Passwort-26": word, "Sommer Maschtein 26": word,
		"Password12345!": "", "Ironplane2026!": names,
	} {
		message := checkStrength(password)
		if !strings.Contains(message, want) || !strings.HasSuffix(message, ". Use a few uncommon words with spaces between them") {
			t.Errorf("%s: got %q, want a refusal with %q and the way out", password, message, want)
		}
		if strings.Contains(message, password) {
			t.Errorf("%s: got %q, want a message without the password", password, message)
		}
	}
}

// Passwords of generators and passphrases are strong enough.
func TestStrongPasswords(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) // the same passwords in each run
	letters := func(alphabet string, n int) string {
		text := make([]byte, n)
		for i := range text {
			text[i] = alphabet[random.IntN(len(alphabet))]
		}
		return string(text)
	}
	const lower, digits, marks = "abcdefghijklmnopqrstuvwxyz", "0123456789", "!#$%&*+-=?@_"
	upper := strings.ToUpper(lower)
	var uncommon []string
	for _, word := range frequency.FrequencyLists["english_wikipedia"][2000:10000] {
		if len(word) > 3 {
			uncommon = append(uncommon, word)
		}
	}
	words := func(n int, separator string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = uncommon[random.IntN(len(uncommon))]
		}
		return strings.Join(all, separator)
	}
	passwords := []string{
		"a long walk in the rain", "nine blue kettles in a barn", "wurst käse brot ü", "drei Birnen, zwei Äpfel", "Müllers Kuh frisst Gras",
		"синий чайник на крыше", "我喜欢在夏天的时候吃苹果和香蕉", "GraniteSparrowQuiver", "seven-grey-herons", "mein Hund heißt Ostwind seit 9 Jahren",
	}
	for range 60 {
		passwords = append(passwords,
			letters(lower+upper+digits, 12), letters(lower+upper+digits+marks, 16), letters(lower+digits, 16), letters("0123456789abcdef", 20),
			letters(lower+upper, 16), letters(upper+"234567", 26), letters(lower, 6)+"-"+letters(lower+digits, 6)+"-"+letters(lower, 6),
			words(4, " "), words(3, "-")+letters(digits, 2), words(5, "."), fmt.Sprintf("%s, %s and %s", words(1, ""), words(1, ""), words(1, "")),
		)
	}
	for _, password := range passwords {
		if message := checkStrength(password); message != "" {
			t.Errorf("%s: got %q, want it to be accepted", password, message)
		}
	}
}
