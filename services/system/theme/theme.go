// Package theme checks what operators put on pages that others see: colours, HTML, CSS and a logo.
package theme

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/microcosm-cc/bluemonday"
	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/css"
	"golang.org/x/image/colornames"
)

var (
	hexColour      = regexp.MustCompile(`^#([0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})$`)
	computedColour = regexp.MustCompile(`^(?i)(rgb|hsl)a?\( *[0-9.]+(%|deg|turn|rad)? *([, ] *[0-9.]+%? *){2}([,/] *[0-9.]+%? *)?\)$`)
)

// CheckColour returns an error unless the text is a CSS colour.
func CheckColour(text string) error {
	_, named := colornames.Map[strings.ToLower(text)]
	if named || slices.Contains([]string{"transparent", "rebeccapurple"}, strings.ToLower(text)) || hexColour.MatchString(text) ||
		computedColour.MatchString(text) {
		return nil
	}
	return errors.New("must be a CSS colour, such as #1d4ed8, rgb(29 78 216 / 90%), hsl(224, 76%, 48%) or navy")
}

// CheckLogo returns an error unless the text is a path on the same host or an https:// URL. Other schemes could run a
// script or be altered on the way.
func CheckLogo(text string) error {
	u, err := url.Parse(text)
	own := err == nil && u.Scheme == "" && u.Host == "" && strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//")
	elsewhere := err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil
	if (own || elsewhere) && !strings.ContainsAny(text, "\\\"'<>() \t\r\n") {
		return nil
	}
	return errors.New("must be a URL such as https://example.com/logo.svg, or a path on the same host such as /logo.svg")
}

// elements are the elements that HTML keeps, without attributes but those of html.
var elements = strings.Fields(
	`a abbr address article aside b bdi bdo blockquote br caption cite code col colgroup dd del details dfn div dl dt em figcaption figure
	h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre q s samp section small span strong sub summary sup table tbody td tfoot th thead time
	tr u ul var wbr`,
)

var html = func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements(elements...)
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^[a-zA-Z0-9 _-]+$`)).Globally()
	p.AllowAttrs("dir").Matching(bluemonday.Direction).Globally()
	p.AllowAttrs("lang").Matching(regexp.MustCompile(`^[a-zA-Z-]{2,20}$`)).Globally()
	p.AllowAttrs("title").Matching(bluemonday.Paragraph).Globally()
	p.AllowAttrs("open").Matching(regexp.MustCompile(`^(|open)$`)).OnElements("details")
	p.AllowAttrs("colspan", "rowspan", "width", "height").Matching(bluemonday.Integer).OnElements("td", "th", "img")
	p.AllowAttrs("scope").Matching(regexp.MustCompile(`^(row|col)(group)?$`)).OnElements("th")
	p.AllowAttrs("href").OnElements("a")
	// An image from another host would tell that host who views which page.
	p.AllowAttrs("src").Matching(regexp.MustCompile(`^/([a-zA-Z0-9._~-][a-zA-Z0-9._~/?=&%-]*)?$`)).OnElements("img")
	p.AllowAttrs("alt").Matching(bluemonday.Paragraph).OnElements("img")
	p.RequireParseableURLs(true)
	p.AllowRelativeURLs(true)
	p.AllowURLSchemes("https", "mailto")
	p.RequireNoFollowOnLinks(true)
	return p
}()

// HTML returns the text with the allowed elements and attributes only. What is left runs nothing, loads nothing from other
// hosts, and has no id or name by which a panel's scripts or links could find it.
func HTML(text string) string { return html.Sanitize(text) }

var (
	atRules   = []string{"@media", "@supports", "@keyframes", "@-webkit-keyframes", "@layer", "@container"}
	functions = strings.Fields(
		`blur brightness calc circle clamp color color-mix conic-gradient contrast counter counters cubic-bezier drop-shadow ellipse
		fit-content grayscale has hsl hsla hue-rotate hwb inset invert is lab lch linear-gradient matrix matrix3d max min minmax not nth-child
		nth-last-child nth-last-of-type nth-of-type oklab oklch opacity perspective polygon radial-gradient repeat repeating-conic-gradient
		repeating-linear-gradient repeating-radial-gradient rgb rgba rotate rotate3d rotatex rotatey rotatez saturate scale scale3d scalex scaley
		sepia skew skewx skewy steps translate translate3d translatex translatey translatez var where`,
	)
	activeProperties = []string{"behavior", "-ms-behavior", "-moz-binding"}
)

var closers = map[css.TokenType]css.TokenType{
	css.LeftBraceToken:       css.RightBraceToken,
	css.LeftBracketToken:     css.RightBracketToken,
	css.LeftParenthesisToken: css.RightParenthesisToken,
	css.FunctionToken:        css.RightParenthesisToken,
}

// CheckCSS returns an error if a style sheet loads files, runs scripts or has unbalanced brackets. Loading files would tell
// other servers who views which page. Unbalanced brackets would extend the style sheet beyond its end.
func CheckCSS(text string) error {
	if i := strings.IndexAny(text, "\\<"); i >= 0 {
		return fmt.Errorf("must not contain %q", text[i])
	}
	var open []css.TokenType // the closing tokens of all open brackets
	for lexer := css.NewLexer(parse.NewInputString(text)); ; {
		kind, content := lexer.Next()
		word := strings.ToLower(string(content))
		switch kind {
		case css.ErrorToken:
			if !errors.Is(lexer.Err(), io.EOF) || len(open) > 0 {
				return errors.New("must close every bracket, string and comment")
			}
			return nil
		case css.URLToken, css.BadURLToken:
			return errors.New("must not load files: remove url(…)")
		case css.BadStringToken, css.CDOToken, css.CDCToken:
			return fmt.Errorf("is not valid CSS at %.20q", word)
		case css.CommentToken:
			if !strings.HasSuffix(word, "*/") || len(word) < len("/**/") {
				return errors.New("must close every bracket, string and comment")
			}
		case css.AtKeywordToken:
			if !slices.Contains(atRules, word) {
				return fmt.Errorf("must not contain %.40s (allowed: %s)", word, strings.Join(atRules, ", "))
			}
		case css.IdentToken:
			if slices.Contains(activeProperties, word) {
				return fmt.Errorf("must not contain %s", word)
			}
		case css.FunctionToken:
			if !slices.Contains(functions, strings.TrimSuffix(word, "(")) {
				return fmt.Errorf("must not contain %.40s)", word)
			}
		}
		if closes, opens := closers[kind]; opens {
			open = append(open, closes)
		} else if kind == css.RightBraceToken || kind == css.RightBracketToken || kind == css.RightParenthesisToken {
			if len(open) == 0 || open[len(open)-1] != kind {
				return errors.New("must not close brackets that are not open")
			}
			open = open[:len(open)-1]
		}
	}
}
