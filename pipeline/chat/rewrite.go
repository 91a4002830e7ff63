package chat

import (
	"regexp"
	"strings"
)

// rewrite writes a template's expressions so that the library takes them as
// Jinja does. Two things it does not:
//
//   - a conditional expression inside brackets, or behind another's else, does
//     not parse: x if c else y becomes ((c) and [x] or [y])[0];
//   - the last item of a list of one is nothing: list[-1] becomes list[-1:][0].
func rewrite(template string) string {
	r := &rewriter{in: template}
	for r.at < len(r.in) {
		next := strings.IndexByte(r.in[r.at:], '{')
		if next < 0 || r.at+next+1 >= len(r.in) {
			break
		}
		r.copy(next)
		switch kind := r.in[r.at+1]; kind {
		case '#':
			end := strings.Index(r.in[r.at:], "#}")
			if end < 0 {
				end = len(r.in) - r.at - len("#}")
			}
			r.copy(end + len("#}"))
		case '{', '%':
			r.copy(2)
			if r.at < len(r.in) && (r.in[r.at] == '-' || r.in[r.at] == '+') {
				r.copy(1)
			}
			r.tag(kind)
		default:
			r.copy(1)
		}
	}
	r.copy(len(r.in) - r.at)
	return r.out.String()
}

type rewriter struct {
	in  string
	at  int // of what is not yet read
	out strings.Builder
}

func (r *rewriter) copy(n int) {
	r.out.WriteString(r.in[r.at : r.at+n])
	r.at += n
}

var word = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)

// tag rewrites what is between two tag marks: an expression, or a statement.
func (r *rewriter) tag(kind byte) {
	shut, whole := "}}", true
	if kind == '%' {
		shut = "%}"
		space := len(r.in[r.at:]) - len(strings.TrimLeft(r.in[r.at:], " \t\r\n"))
		name := word.FindString(r.in[r.at+space:])
		r.copy(space + len(name))
		// The if of a for is no conditional expression.
		whole = name == "set" || name == "if" || name == "elif"
		if name == "raw" {
			end := strings.Index(r.in[r.at:], "endraw")
			if end < 0 {
				end = len(r.in) - r.at
			}
			r.copy(end)
		}
	}
	r.out.WriteString(r.list(shut, whole))
}

// list reads items up to a closing mark, which is left unread, and rewrites
// them; the items themselves only if all is set, what is in brackets always.
func (r *rewriter) list(shut string, all bool) string {
	var out strings.Builder
	var item strings.Builder
	var words []int // positions of if and else in item
	flush := func() {
		if all {
			out.WriteString(conditional(item.String(), words))
		} else {
			out.WriteString(item.String())
		}
		item.Reset()
		words = nil
	}
	for r.at < len(r.in) && !strings.HasPrefix(r.in[r.at:], shut) {
		rest := r.in[r.at:]
		switch c := rest[0]; {
		case (c == '-' || c == '+') && strings.HasPrefix(rest[1:], shut) && len(shut) == 2:
			// The mark of a tag may trim white space behind it.
			flush()
			out.WriteByte(c)
			r.at++
		case c == '\'' || c == '"':
			n := 1
			for n < len(rest) && rest[n] != c {
				if rest[n] == '\\' {
					n++
				}
				n++
			}
			n = min(n+1, len(rest))
			item.WriteString(rest[:n])
			r.at += n
		case c == '(' || c == '[' || c == '{':
			r.at++
			end := map[byte]string{'(': ")", '[': "]", '{': "}"}[c]
			inner := r.list(end, true)
			if c == '[' && negative.MatchString(inner) && value.MatchString(item.String()) {
				inner = strings.TrimSpace(inner) + ":][0"
			}
			item.WriteByte(c)
			item.WriteString(inner)
			if r.at < len(r.in) {
				item.WriteString(end)
				r.at++
			}
		case c == ',' || c == ':' || c == '=' && !strings.HasPrefix(rest, "==") && !comparing.MatchString(item.String()):
			flush()
			out.WriteByte(c)
			r.at++
		default:
			name := word.FindString(rest)
			if name == "if" || name == "else" {
				words = append(words, item.Len())
			}
			if name == "" {
				name = rest[:1]
				if c == '=' { // of ==, whose second must not be taken for one
					name = rest[:min(2, len(rest))]
				}
			}
			item.WriteString(name)
			r.at += len(name)
		}
	}
	flush()
	return out.String()
}

var (
	negative  = regexp.MustCompile(`^\s*-\s*[0-9]+\s*$`)
	value     = regexp.MustCompile(`[A-Za-z0-9_)\]"'}]\s*$`)
	comparing = regexp.MustCompile(`[!<>=]$`)
)

// conditional rewrites an item: words are the positions of if and else in it.
func conditional(item string, words []int) string {
	if len(words) == 0 || item[words[0]] != 'i' {
		return item
	}
	condition, otherwise := item[words[0]+len("if"):], "''"
	if len(words) > 1 && item[words[1]] == 'e' {
		condition = item[words[0]+len("if") : words[1]]
		behind := words[1] + len("else")
		var rest []int
		for _, at := range words[2:] {
			rest = append(rest, at-behind)
		}
		otherwise = conditional(item[behind:], rest)
	}
	trim := strings.TrimSpace
	return " ((" + trim(condition) + ") and [" + trim(item[:words[0]]) + "] or [" + trim(otherwise) + "])[0] "
}
