//! How long a transfer will still take.

use model::progress::Counts;

/// What hosts with ordinary disks do with small files; only where this transfer has not shown a rate of its own.
const ORDINARY_FILES_PER_SECOND: f64 = 5000.0;
/// So much larger than those left were the files of late when their rate is no measure. (The two estimates differ by what
/// the mean sizes differ.)
const LARGER_OF_LATE: f64 = 2.0;

/// Seconds until everything listed is at its destination, if that can be told.
///
/// `None` while the listing is incomplete, or when nothing moves. The slower of two estimates counts, by bytes and by
/// files: a set that ends in many small files is limited by their number, one that ends in a large file by its bytes.
/// Where the files of late were much larger than those left (large ones go first), their number says nothing of how fast
/// small ones will go: then it is the bytes, and an ordinary rate for the files. Bytes of failed files are not told apart
/// in the counts and make the estimate longer, never shorter.
pub fn time_left(
    counts: &Counts,
    is_listing_complete: bool,
    rate_now_bytes_per_second: f64,
    files_per_second: f64,
) -> Option<f64> {
    if !is_listing_complete {
        return None;
    }
    let files_over = counts.files_done.saturating_add(counts.files_skipped).saturating_add(counts.files_failed);
    let files_left = counts.files_listed.saturating_sub(files_over);
    if files_left == 0 {
        return Some(0.0);
    }
    let bytes_left = counts.bytes_listed.saturating_sub(counts.bytes_done.saturating_add(counts.bytes_skipped));
    let by_bytes = seconds(bytes_left, rate_now_bytes_per_second);
    let by_files = seconds(files_left, files_per_second);
    let ordinary = files_left as f64 / ORDINARY_FILES_PER_SECOND;
    match (by_bytes, by_files) {
        (Some(bytes), Some(files)) if files > LARGER_OF_LATE * bytes => Some(files.min(bytes + ordinary)),
        (Some(bytes), Some(files)) => Some(bytes.max(files)),
        (Some(bytes), None) => Some(bytes + ordinary),
        (None, by_files) => by_files,
    }
}

fn seconds(left: u64, per_second: f64) -> Option<f64> {
    let seconds = left as f64 / per_second;
    (per_second > 0.0 && seconds.is_finite()).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts() -> Counts {
        Counts { files_listed: 100, bytes_listed: 10_000, files_done: 50, bytes_done: 4_000, ..Counts::default() }
    }

    #[test]
    fn nothing_is_told_while_the_listing_grows_or_nothing_moves() {
        assert_eq!(time_left(&counts(), false, 1000.0, 10.0), None);
        assert_eq!(time_left(&counts(), true, 0.0, 0.0), None);
        assert_eq!(time_left(&counts(), true, f64::NAN, -1.0), None);
    }

    #[test]
    fn the_slower_estimate_counts() {
        assert_eq!(time_left(&counts(), true, 1000.0, 50.0), Some(6.0));
        assert_eq!(time_left(&counts(), true, 1000.0, 5.0), Some(10.0));
    }

    #[test]
    fn a_large_file_that_completes_nothing_yet_is_judged_by_its_bytes() {
        assert_eq!(time_left(&counts(), true, 1000.0, 0.0), Some(6.01));
    }

    #[test]
    fn small_files_after_large_ones_are_not_judged_by_the_large_ones_rate() {
        let counts = Counts { files_listed: 3004, files_done: 1, bytes_listed: 1_600, bytes_done: 1_100, ..counts() };
        assert_eq!(time_left(&counts, true, 100.0, 0.25), Some(5.0 + 3003.0 / 5000.0));
        // Nor longer than at their rate.
        assert_eq!(time_left(&counts, true, 500_000.0, 100_000.0), Some(0.03003));
    }

    #[test]
    fn empty_files_are_judged_by_their_number() {
        let empty = Counts { files_listed: 100, ..Counts::default() };
        assert_eq!(time_left(&empty, true, 0.0, 50.0), Some(2.0));
    }

    #[test]
    fn what_failed_or_was_skipped_is_not_waited_for() {
        let over = Counts { files_done: 40, files_skipped: 50, files_failed: 10, ..counts() };
        assert_eq!(time_left(&over, true, 0.0, 0.0), Some(0.0));
    }

    proptest! {
        #[test]
        fn an_estimate_is_finite_and_not_negative(
            listed: [u64; 2], done: [u64; 2], other: [u64; 3], rate: f64, files: f64,
        ) {
            let counts = Counts {
                files_listed: listed[0], bytes_listed: listed[1], files_done: done[0], bytes_done: done[1],
                files_skipped: other[0], bytes_skipped: other[1], files_failed: other[2], ..Counts::default()
            };
            if let Some(seconds) = time_left(&counts, true, rate, files) {
                prop_assert!(seconds.is_finite() && seconds >= 0.0);
            }
        }
    }
}
