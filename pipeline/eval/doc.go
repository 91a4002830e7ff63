// Package eval scores the completions of a job, finished or not, as often as is
// wanted and without decoding anything again: programs by their tests
// (HumanEval's form, pass@k), texts by a reference (ROUGE, exact match).
//
// A program is made of a completion in one of three ways. None: the prompt and the
// completion behind it, HumanEval's definition. Fenced, for chats: the code of the
// first fenced block that defines the function, else of the first block, else the
// completion; where that defines the function it stands in its place, behind what
// the prompt has before the function, and otherwise behind the prompt. Whole: the
// completion alone. The stored completion is never changed.
//
// [Export] writes completions in the formats of other systems. [ReadGiven] reads
// them, and [Import] makes a job of them, which is scored and compared like others.
//
// Its parts stand alone: eval/sandbox runs programs, eval/passk and eval/rouge
// compute measures, eval/stat compares two ways of decoding by them. What is
// scored here is compared by pipeline/report.
package eval
