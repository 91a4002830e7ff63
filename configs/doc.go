// Package configs is draftmill's typed configuration: what submit and worker
// can be told, by which name, with which default, and what is refused.
//
// # Where a value comes from
//
// Every setting is one row of the table in keys.go and has one path, such as
// sampling.top_p. The strongest source that names it wins:
//
//  1. a flag, where the setting has one: --top-p 0.9
//  2. the environment: DRAFTMILL_ and the path in capitals with '_' for '.',
//     so DRAFTMILL_SAMPLING_TOP_P=0.9 and DRAFTMILL_ORT_LIBRARY=/usr/local/lib/libonnxruntime.so.1;
//     an empty variable counts as unset; lists and maps are written as YAML in
//     one line: DRAFTMILL_SAMPLING_STOP='["\nclass", "\ndef"]'
//  3. the YAML file of --config (or DRAFTMILL_CONFIG), with the path as nested
//     keys
//  4. the default in the table
//
// A stronger source replaces a weaker one's list or map as a whole.
//
// # What is refused
//
// A key in the file or a DRAFTMILL_ variable that no row knows, a value of the
// wrong type or out of range, a file that is not there: each is a [*UsageError]
// of one line that names the setting and the place where it was given. Nothing
// is guessed: 4.7 is no whole number, yes is no truth value, and a list never
// comes out of a comma.
//
// # Paths
//
// A relative path means the current directory, whether it stands in a flag, in
// a variable or in the YAML file, so that a value can move between the three
// without changing its meaning. The examples beside this file are written to
// be used from the repository's root.
//
// # The demo pair
//
// Without any target and draft the two models under testdata/demo are used. A
// target of the user's own is never paired with the demo draft: name both.
//
// The package imports viper and pflag and nothing else of draftmill; turning
// settings into models, queues and files is the commands' work. Configurations
// kept as good and bad files in testdata follow prometheus/config.
package configs
