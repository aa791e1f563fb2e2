package identity_test

import (
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
)

// failedLoginMails returns the mails of type C to an address.
func failedLoginMails[C mail.Content](s *fixture, address string) (found []C) {
	for _, m := range s.System.Mails(address) {
		if content, ok := m.Opened.(C); ok {
			found = append(found, content)
		}
	}
	return found
}

// wantMails waits until an address has this many mails of type C, and checks that no job sends another one.
func wantMails[C mail.Content](s *fixture, address string, want int) []C {
	s.t.Helper()
	found := func() []C { return failedLoginMails[C](s, address) }
	testkit.Await(s.t, "mails arrive", func() int { return len(found()) }, func(got int) bool { return got >= want })
	var jobs int
	if err := s.DB.QueryRow(s.t.Context(), "SELECT count(*) FROM river_job WHERE kind = 'failed-login'").Scan(&jobs); err != nil {
		s.t.Fatal(err)
	}
	if got := len(found()); got != want || jobs != want {
		s.t.Errorf("got %d mails by %d jobs, want %d", got, jobs, want)
	}
	return found()
}

// After ten wrong passwords within a day, the owner gets a mail, and not another one within a day, however many guesses there are.
func TestFailedLoginsMail(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"admin", "client"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, c := newFixture(t)
			anonymous := c.WithKey("")
			s.newPerson(kind, "anna@example.com")
			device := newDevice(t, anonymous, loginBody(kind, "anna@example.com", password))
			for range lockout.MaxPerNameAndAddress { // these cause no mail
				anonymous.Do("POST", "/auth/key", loginBody(kind, "nobody@example.com", "wrong")).Want(401)
			}
			guesses := 0
			guess := func(times int) {
				t.Helper()
				guesses += times
				var all sync.WaitGroup
				for range times {
					all.Go(func() {
						anonymous.Do("POST", "/auth/key", withDevice(loginBody(kind, "anna@example.com", "wrong"), device)).Want(401)
					})
				}
				all.Wait()
				s.wantRecords(kind+".password.refused", guesses)
			}
			wantMails := func(want int) []mail.FailedLogins { return wantMails[mail.FailedLogins](s, "anna@example.com", want) }
			guess(9)
			wantMails(0)
			guess(16)
			if got := wantMails(1)[0]; got.Count != 10 || got.IP != "192.0.2.7" || got.At.IsZero() {
				t.Errorf("got a mail about %+v, want one about ten passwords from 192.0.2.7", got)
			}
			testkit.Execute(t, s.DB, "UPDATE failed_login SET since = since - interval '23 hours'")
			guess(10)
			wantMails(1)
			testkit.Execute(t, s.DB, "UPDATE failed_login SET since = since - interval '1 hour'")
			guess(9)
			wantMails(1)
			guess(1)
			wantMails(2)
		})
	}
}

// The first wrong second factor after a right password is mailed to the owner, once a day. A wrong code within a session is not.
func TestFailedSecondFactorMail(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"admin", "client"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, c := newFixture(t)
			s.newPerson(kind, "anna@example.com")
			login := loginBody(kind, "anna@example.com", password)
			_, session := signIn(t, c, login)
			app, _ := secondfactor.NewVerifiedApp(t, s.DB, session)
			own := session.Do("POST", app.Path()+"/code", `{}`).Want(200).ID()
			session.Do("PATCH", path("%s/code/%d", app.Path(), own), map[string]any{"token": invalidToken}).WantErrors("/token", "wrong")
			wantMails[mail.FailedSecondFactor](s, "anna@example.com", 0)
			guess := func() {
				t.Helper()
				v := secondfactor.BeginLogin(t, c, login)
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() { c.WithKey("").Do("PATCH", v.Path(), v.Answer(invalidToken)).WantErrors("/token", "wrong") })
				}
				all.Wait()
			}
			guess()
			if got := wantMails[mail.FailedSecondFactor](s, "anna@example.com", 1)[0]; got.IP != "192.0.2.7" || got.At.IsZero() {
				t.Errorf("got a mail about %+v, want one about 192.0.2.7", got)
			}
			guess()
			wantMails[mail.FailedSecondFactor](s, "anna@example.com", 1)
			testkit.Execute(t, s.DB, "UPDATE failed_login SET since = since - interval '1 day'")
			guess()
			wantMails[mail.FailedSecondFactor](s, "anna@example.com", 2)
		})
	}
}
