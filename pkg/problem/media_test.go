package problem

import "testing"

func TestAccept(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]struct{ csv, problem bool }{
		"":                                 {false, false},
		"*/*":                              {false, false},
		"application/json":                 {false, false},
		"text/csv":                         {true, false},
		"text/csv, */*":                    {true, false},
		"text/*":                           {true, false},
		"application/json;q=0.1, text/csv": {true, false},
		"application/json, text/csv;q=0.9": {false, false},
		"text/csv;q=0, */*":                {false, false},
		"application/problem+json":         {false, true},
		"application/json, application/problem+json;q=0.1": {false, false},
		"application/problem+json, */*":                    {false, true},
		"application/*":                                    {false, false},
		"garbage, ;q=x, text/csv;q=7":                      {false, false},
	} {
		if Prefers(accept, MediaCSV) != want.csv || Prefers(accept, MediaProblem) != want.problem {
			t.Errorf(
				"%q: got CSV %t, problem %t, want %t, %t",
				accept, Prefers(accept, MediaCSV), Prefers(accept, MediaProblem), want.csv, want.problem,
			)
		}
	}
}
