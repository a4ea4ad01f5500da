//! The flags that bound a transfer: how fast, how far, how long, how often, and how much is put on the wire; `cp` and `sync`
//! share them.
//!
//! Not here: stopping a run at such a limit (`transfer`).

use model::options::Compression;
use model::pace::Timetable;
use model::spec::Bounds;
use model::{Class, TransferOptions};
use std::sync::Arc;
use std::time::Duration;

// What is asked of a transfer beside its ends.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Compress on the wire: as strongly as pays, or with one method; incompressible content is sent as it is [default
    /// without a value: auto]
    #[arg(
        short = 'z',
        long,
        value_name = "auto|zstd|lz4|none",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto",
        env = "THALWEG_COMPRESS"
    )]
    compress: Option<Compression>,
    /// Limit the rate of all streams together: 500Mbit, 10M (MiB per second; a bare number is KiB), or a timetable such
    /// as "08:00,512K 12:00,10M Sat-00:00,off" by this host's clock
    #[arg(long, value_name = "RATE|TIMETABLE", value_parser = Timetable::parse, env = "THALWEG_BWLIMIT")]
    bwlimit: Option<Timetable>,
    /// How much this copy counts beside others at the same endpoint: high, normal or low [default: normal]
    #[arg(long, value_name = "CLASS", env = "THALWEG_CLASS")]
    class: Option<Class>,
    /// Stop cleanly before sending more than this much content (exit code 8); the same command resumes
    #[arg(long, value_name = "SIZE", value_parser = model::quantity::parse_bytes, env = "THALWEG_MAX_TRANSFER")]
    max_transfer: Option<u64>,
    /// Stop cleanly after this time, such as 90s or 8h (exit code 10); the same command resumes
    #[arg(long, value_name = "TIME", value_parser = time, env = "THALWEG_MAX_DURATION")]
    max_duration: Option<Duration>,
    /// Give up an attempt if nothing has moved for this long although the other side answers [default: 15m]
    #[arg(long, value_name = "TIME", value_parser = time, env = "THALWEG_TIMEOUT")]
    timeout: Option<Duration>,
    /// Stop at the first file that cannot be delivered
    // Of the two the last one typed holds; what another place says is excluded as by any other flag (`args::precedence`).
    #[arg(long, overrides_with = "keep_going", conflicts_with = "keep_going", env = "THALWEG_FAIL_FAST")]
    fail_fast: bool,
    /// Deliver everything possible and list what failed: the default without --fail-fast
    #[arg(long, overrides_with = "fail_fast", env = "THALWEG_KEEP_GOING")]
    keep_going: bool,
}

impl LimitArgs {
    /// Puts what the mover has to know into its options.
    pub fn apply(&self, options: &mut TransferOptions) {
        options.compression = self.compress.unwrap_or_default();
        options.pace = self.bwlimit.clone().filter(|table| table.rate_min().is_some()).map(Arc::new);
        options.payload_bytes_max = self.max_transfer;
        options.class = self.class;
    }

    pub fn bounds(&self) -> Bounds {
        Bounds {
            duration_max: self.max_duration,
            no_progress: self.timeout,
            is_fail_fast: self.fail_fast && !self.keep_going,
        }
    }
}

/// Reads a time span; a bare number is seconds, as rsync has it.
fn time(text: &str) -> Result<Duration, String> {
    let is_bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    model::quantity::parse_span(&if is_bare { format!("{text}s") } else { text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        limits: LimitArgs,
        words: Vec<String>,
    }

    fn parse(words: &[&str]) -> Alone {
        Alone::try_parse_from(["x"].iter().chain(words)).unwrap_or_else(|e| panic!("{e}"))
    }

    fn options(words: &[&str]) -> TransferOptions {
        let mut options = TransferOptions::default();
        parse(words).limits.apply(&mut options);
        options
    }

    #[test]
    fn compression_is_off_unless_asked_for_and_takes_no_word_that_follows_it() {
        assert_eq!(options(&[]).compression, Compression::None);
        assert_eq!(options(&["-z"]).compression, Compression::Auto);
        assert_eq!(options(&["-z=zstd"]).compression, Compression::Zstd);
        assert_eq!(options(&["--compress=lz4"]).compression, Compression::Lz4);
        assert_eq!(options(&["--compress=none"]).compression, Compression::None);
        assert_eq!(parse(&["-z", "zstd"]).words, ["zstd"]);
        assert!(Alone::try_parse_from(["x", "--compress=gzip"]).is_err());
    }

    #[test]
    fn rates_and_times_are_read_as_people_write_them() {
        assert_eq!(options(&["--bwlimit", "10M"]).pace.unwrap().rate_at(0), Some(10 << 20));
        assert_eq!(options(&["--bwlimit", "off"]).pace, None);
        assert_eq!(options(&["--max-transfer", "1G"]).payload_bytes_max, Some(1 << 30));
        let bounds = parse(&["--max-duration", "2h", "--timeout", "45"]).limits.bounds();
        assert_eq!(bounds.duration_max, Some(Duration::from_secs(7200)));
        assert_eq!(bounds.no_progress, Some(Duration::from_secs(45)));
    }

    #[test]
    fn a_class_is_one_of_three_words() {
        assert_eq!(options(&["--class", "low"]).class, Some(Class::Low));
        assert_eq!(options(&[]).class, None);
        assert!(Alone::try_parse_from(["x", "--class", "urgent"]).is_err());
    }

    #[test]
    fn the_last_word_on_failures_counts() {
        for (words, is_fail_fast) in [
            (&["--fail-fast"][..], true),
            (&["--fail-fast", "--keep-going"], false),
            (&["--keep-going", "--fail-fast"], true),
            (&[], false),
        ] {
            assert_eq!(parse(words).limits.bounds().is_fail_fast, is_fail_fast, "{words:?}");
        }
    }
}
