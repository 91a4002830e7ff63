package configs

import "strings"

var separators = strings.NewReplacer("-", "_", ".", "_")

// nearest is the setting that an unknown name most likely meant. A name may be
// a path, its last part or a flag's name, of a file or of a variable.
func nearest(unknown string) (key, bool) {
	last := unknown[strings.LastIndexByte(unknown, '.')+1:]
	best, found := 1.0, key{}
	for _, k := range keys {
		leaf := k.path[strings.LastIndexByte(k.path, '.')+1:]
		for _, name := range []string{k.path, leaf, k.flag} {
			for _, given := range []string{unknown, last} {
				if d := distance(given, name); name != "" && d < best {
					best, found = d, k
				}
			}
		}
	}
	return found, best <= 1.0/4
}

// distance is the edit distance (Levenshtein) of two names per letter of the
// first, with '-', '.', '_' and the case of letters all alike.
func distance(a, b string) float64 {
	a, b = separators.Replace(strings.ToLower(a)), separators.Replace(strings.ToLower(b))
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return float64(row[len(b)]) / float64(max(len(a), 1))
}
