// Package passk estimates pass@k: the chance that at least one of k samples of
// a problem passes its tests (Chen et al. 2021, "Evaluating Large Language
// Models Trained on Code", section 2.1).
package passk

// Estimate is the unbiased estimator of pass@k of one problem from n samples,
// of which c passed: 1 - C(n-c, k) / C(n, k), computed as a product. It is 1
// where fewer than k failed. 1 <= k <= n and 0 <= c <= n are the caller's.
func Estimate(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	none := 1.0
	for i := n - c + 1; i <= n; i++ {
		none *= 1 - float64(k)/float64(i)
	}
	return 1 - none
}

// Ks are those of 1, 10 and 100 that n samples of each problem allow.
func Ks(n int) []int {
	var ks []int
	for _, k := range []int{1, 10, 100} {
		if k <= n {
			ks = append(ks, k)
		}
	}
	return ks
}
