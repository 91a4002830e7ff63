// Command ours is draftmill's side of the comparison with its peers: it holds
// the pair of models open and measures what its standard input asks for, a line
// at a time, so that run.py can take turns between it and the others. See
// ../README.md for the requests and what they answer.
package main
