//! A transfer as a value: what is to be copied, where to, and how. It can be written down, handed on and carried out elsewhere.
//!
//! Written, it is a flat list with the names of `cp`'s and `sync`'s long flags (docs/embedding.md). What is at its default may be
//! left out.
//!
//! Invariants: what is written reads back as the same value, whatever bytes its paths hold; a key or a version that this program
//! does not know is an error, never passed over.
//!
//! Not here: how a transfer is carried out (`transfer`), and what is shown of it.

mod form;

use crate::location::Location;
use crate::options::TransferOptions;
use crate::paths::PathWish;
use crate::selection::Choice;
use std::time::Duration;

/// The version of the written form.
pub const VERSION: u32 = 1;
/// How often in a row an attempt may fail without progress.
pub const RETRIES_DEFAULT: u32 = 5;

#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(into = "form::Form", try_from = "form::Form")]
pub struct TransferSpec {
    pub sources: Vec<Location>,
    pub destination: Location,
    /// Where the same is to be had besides: of one source.
    pub replicas: Vec<Location>,
    /// What of the sources is taken.
    pub choice: Choice,
    /// All but the selection, which is made of `choice` when the transfer starts.
    pub options: TransferOptions,
    /// Nobody asked for a length of chunks: where `options` has the default, they are shorter over distance.
    pub may_shorten_chunks: bool,
    /// Data streams, or lanes within one host; chosen where it is not said.
    pub streams: Option<u32>,
    /// Where their number begins, by a plan, if it is not said; it follows the path from there.
    pub streams_first: Option<u32>,
    /// Network paths to the other host.
    pub paths: PathWish,
    /// Congestion control, by the kernel's name, of the side that sends.
    pub congestion: Option<String>,
    /// For the blocks of all lanes of this side; nothing is the default.
    pub memory_bytes: Option<usize>,
    /// How often in a row an attempt may fail without progress.
    pub retries: u32,
    pub bounds: Bounds,
}

/// Where a transfer stops in order: what was verified is kept, and the same request goes on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    pub duration_max: Option<Duration>,
    /// How long an attempt may stand still.
    pub no_progress: Option<Duration>,
    pub is_fail_fast: bool,
}

impl TransferSpec {
    /// With everything at its default.
    pub fn new(sources: Vec<Location>, destination: Location) -> TransferSpec {
        TransferSpec {
            sources,
            destination,
            replicas: Vec::new(),
            choice: Choice::default(),
            options: TransferOptions::default(),
            may_shorten_chunks: true,
            streams: None,
            streams_first: None,
            paths: PathWish::default(),
            congestion: None,
            memory_bytes: None,
            retries: RETRIES_DEFAULT,
            bounds: Bounds::default(),
        }
    }

    /// The options of a transfer that starts at a moment, in seconds since 1970.
    pub fn options_at(&self, now: i64) -> TransferOptions {
        TransferOptions { selection: self.choice.at(now).into(), ..self.options.clone() }
    }

    /// Something is asked beyond copying everything and skipping what has the same size and time.
    pub fn is_beyond_plain_copy(&self) -> bool {
        !self.choice.is_everything() || self.options.is_beyond_plain_copy()
    }

    /// Standard input or output is an end of it: it can be read or written once.
    pub fn has_pipe(&self) -> bool {
        self.destination == Location::Pipe || self.sources.contains(&Location::Pipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Filter, Rule};
    use crate::follow::{Follow, FollowEnd, LagAlarm, Until, View};
    use crate::options::{Buffer, Compare, Compression, Deletion, Depths, Engine, Fsync, Slice, Verify, Wait};
    use crate::pace::Timetable;
    use crate::selection::Listed;
    use crate::{DigestAlgorithm, Fidelity, Name};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::Arc;

    fn location(text: &[u8]) -> Location {
        Location::parse(OsStr::from_bytes(text)).unwrap()
    }

    fn plain() -> TransferSpec {
        TransferSpec::new(vec![location(b"data/")], location(b"lab:in/"))
    }

    fn read(text: &str) -> Result<TransferSpec, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    /// Every field differs from its default. The patterns of `form` see to it that none is forgotten.
    fn full() -> TransferSpec {
        let rules = ["+ *.h5", "- *"].map(|rule| Rule::parse(rule).unwrap());
        TransferSpec {
            sources: vec![location(b"./a\\b\n\xff"), location(b"lab:x\xfe"), location(b"s3://b/\xff")],
            destination: location(b"tw://[::1]:7740/in"),
            replicas: vec![location(b"b:x\xfe"), location(b"c:y")],
            choice: Choice {
                filter: Filter::new(rules.to_vec()).unwrap(),
                size_bytes_min: 3,
                size_bytes_max: Some(0),
                newer_than: Some(Duration::from_secs(7 * 86_400)),
                older_than: Some(Duration::from_secs(60)),
                listed: Some(Listed::new(vec![b"a/\xff".to_vec(), b"b".to_vec()]).unwrap()),
            },
            options: TransferOptions {
                fsync: Fsync::Never,
                verify: Verify::Reread,
                digest: DigestAlgorithm::Blake3,
                chunk_bytes: 1 << 20,
                no_clobber: true,
                chmod: Some((0o640, 0o750)),
                engine: Engine::Plain,
                depths: Depths { read: 4, write: 32 },
                selection: Arc::default(),
                compare: Compare::Checksum,
                keeps_newer: true,
                only_existing: true,
                is_dry_run: true,
                tells_changes: true,
                deletion: Some(Deletion { is_at_root: true, removals_max: Some(9) }),
                backup: Some(b"old/\xff".to_vec()),
                is_delta: true,
                fidelity: Fidelity { xattrs: true, owner: true, ..Fidelity::default() },
                compression: Compression::Auto,
                pace: Some(Arc::new(Timetable::parse("08:00,512K 12:00,off").unwrap())),
                payload_bytes_max: Some(77),
                congestion: None,
                class: Some(crate::Class::Low),
                follow: Some(Arc::new(Follow {
                    until: Until::Rename(vec![b"*.\xff"[..].into()]),
                    ends: vec![
                        FollowEnd::Marker(Name::new(b"STOP\xff").unwrap()),
                        FollowEnd::Idle(Duration::from_secs(60)),
                    ],
                    is_append_only: true,
                    alarm: Some(LagAlarm::Bytes(5)),
                })),
                view: Some(Arc::new(View { unfinished: vec![b"*.\xff"[..].into()] })),
                sealed_list: Some(Name::new(b"done\xff").unwrap()),
                buffer: Buffer::Always,
                wait: Wait::Delivered,
                slice: Some(Arc::new(Slice {
                    instead_of: vec![crate::JobId([1; 16]), crate::JobId([0xff; 16])],
                    run: Some(crate::JobId([2; 16])),
                    range: Some(crate::Extent::new(1 << 20, 1 << 60)),
                })),
            },
            may_shorten_chunks: false,
            streams: Some(4),
            streams_first: Some(3),
            paths: "10.0.0.1=10.0.0.2".parse().unwrap(),
            congestion: Some("bbr".into()),
            memory_bytes: Some(1 << 20),
            retries: 0,
            bounds: Bounds {
                duration_max: Some(Duration::from_secs(8)),
                no_progress: Some(Duration::from_millis(1500)),
                is_fail_fast: true,
            },
        }
    }

    #[test]
    fn what_is_written_reads_back_whatever_bytes_its_paths_hold() {
        for spec in [plain(), full()] {
            let text = serde_json::to_string(&spec).unwrap();
            assert_eq!(read(&text), Ok(spec), "{text}");
        }
    }

    #[test]
    fn a_path_that_looks_like_something_else_stays_a_path() {
        for path in ["a:b", "-", "null:", "s3://x", "gen:1x1"] {
            let spec = TransferSpec::new(vec![Location::Local(path.into())], location(b"x"));
            let again = read(&serde_json::to_string(&spec).unwrap()).unwrap();
            assert_eq!(again.sources, [Location::Local(format!("./{path}").into())]);
        }
    }

    #[test]
    fn defaults_are_left_out() {
        let text = serde_json::to_string(&plain()).unwrap();
        assert_eq!(text, r#"{"version":1,"sources":["data/"],"destination":"lab:in/"}"#);
    }

    #[test]
    fn a_length_of_chunks_that_was_asked_for_is_written_though_it_is_the_default() {
        let asked = TransferSpec { may_shorten_chunks: false, ..plain() };
        let text = serde_json::to_string(&asked).unwrap();
        assert!(text.contains(r#""chunk-size":8388608"#), "{text}");
        assert_eq!(read(&text), Ok(asked));
    }

    #[test]
    fn every_key_is_written_where_nothing_is_at_its_default() {
        let written = serde_json::to_value(full()).unwrap();
        assert_eq!(written.as_object().unwrap().len(), 52, "{written}");
    }

    #[test]
    fn unknown_keys_versions_and_words_are_refused() {
        for (text, why) in [
            (r#"{"version":2,"sources":["a"],"destination":"b"}"#, "version 2"),
            (r#"{"version":1,"sources":["a"],"destination":"b","fsnyc":"never"}"#, "unknown field `fsnyc`"),
            (r#"{"version":1,"sources":[],"destination":"b"}"#, "no source"),
            (r#"{"version":1,"sources":["a"],"destination":""}"#, "must not be empty"),
            (r#"{"version":1,"sources":["a"],"destination":"b","fsync":"often"}"#, "\"often\" is not one of"),
            (r#"{"version":1,"sources":["a\\q"],"destination":"b"}"#, "escape"),
            (r#"{"version":1,"sources":["a"],"destination":"b","filter":["x"]}"#, "filter rule"),
            (r#"{"version":1,"sources":["a"],"destination":"b","files":["../x"]}"#, "../x"),
            (r#"{"version":1,"sources":["a"],"destination":"b","chunk-size":3}"#, "chunk-size"),
            (r#"{"version":1,"sources":["a"],"destination":"b","chmod":["4755","755"]}"#, "permission bits"),
            (r#"{"version":1,"sources":["a"],"destination":"b","slice":["00"]}"#, "is no job"),
            (r#"{"version":1,"sources":["a"],"destination":"b","slice":[],"range":[0,1]}"#, "is no range"),
            (r#"{"version":1,"sources":["a"],"destination":"b","max-delete":3}"#, "max-delete"),
            (r#"{"version":1,"sources":["a"],"destination":"b","end":["idle:1m"]}"#, "without until"),
            (r#"{"version":1,"sources":["a"],"destination":"b","until":"soon"}"#, "expected close"),
            (r#"{"sources":["a"],"destination":"b"}"#, "missing field `version`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn ages_count_back_from_the_moment_at_which_the_transfer_starts() {
        let mut spec = plain();
        spec.choice.newer_than = Some(Duration::from_secs(10));
        assert_eq!(spec.options_at(100).selection.bounds.modified_since, Some(90));
        assert_eq!(spec.options_at(200).selection.bounds.modified_since, Some(190));
        assert!(spec.is_beyond_plain_copy() && !plain().is_beyond_plain_copy());
    }
}
