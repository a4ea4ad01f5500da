//! The flags that say what is chosen, which all commands share that go through trees, and for `cp` and `sync` what counts as changed.
//!
//! Invariant: filter rules keep the order in which they were given, across flags and files.

use crate::exit::{self, Result, usage};
use crate::place::Place;
use ::transfer::trees;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use model::files::Record;
use model::filter::{Filter, Rule};
use model::options::Compare;
use model::selection::{LISTED_BYTES_MAX, LISTED_MAX, Listed};
use model::{Choice, DigestAlgorithm, Selection, TransferOptions};
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A flag that gives rules: name, value, variable, help.
type Flag = (&'static str, &'static str, &'static str, &'static str);

const FLAGS: [Flag; 6] = [
    ("filter", "RULE", "THALWEG_FILTER", "A rule: `+ PATTERN` includes, `- PATTERN` excludes; the first match decides"),
    ("include", "PATTERN", "THALWEG_INCLUDE", "Include what matches; if no rule excludes anything, exclude the rest"),
    ("exclude", "PATTERN", "THALWEG_EXCLUDE", "Exclude what matches, such as *.tmp, /build/ or cache/**"),
    (
        "filter-from",
        "FILE",
        "THALWEG_FILTER_FROM",
        "Rules from a file, one per line; lines that begin with # or ; are comments",
    ),
    ("include-from", "FILE", "THALWEG_INCLUDE_FROM", "Patterns to include, from a file, one per line"),
    ("exclude-from", "FILE", "THALWEG_EXCLUDE_FROM", "Patterns to exclude, from a file, one per line"),
];

/// Files of rules and lists are read up to this length.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The flags that give rules, in their order.
#[derive(Debug, Default, Clone)]
pub struct RuleArgs {
    given: Vec<(&'static str, OsString)>,
}

impl FromArgMatches for RuleArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<RuleArgs, clap::Error> {
        let mut given = Vec::new();
        for (name, ..) in FLAGS {
            let values = matches.get_many::<OsString>(name).into_iter().flatten();
            let indices = matches.indices_of(name).into_iter().flatten().chain(std::iter::repeat(usize::MAX));
            given.extend(values.zip(indices).map(|(value, index)| (index, name, value.clone())));
        }
        given.sort_by_key(|(index, ..)| *index);
        Ok(RuleArgs { given: given.into_iter().map(|(_, name, value)| (name, value)).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = RuleArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for RuleArgs {
    fn augment_args(command: Command) -> Command {
        FLAGS.into_iter().fold(command, |command, (name, value, variable, help)| {
            let arg = Arg::new(name).long(name).value_name(value).env(variable).help(help);
            // A rule that leaves begins with a minus sign.
            let arg = arg.allow_hyphen_values(true);
            command.arg(arg.action(ArgAction::Append).value_parser(value_parser!(OsString)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// A rule and where it was given.
#[derive(Debug, PartialEq, Eq)]
pub struct Given {
    pub rule: Rule,
    /// `--exclude`, or `rules:3`.
    pub place: String,
}

impl RuleArgs {
    pub fn rules(&self) -> Result<Vec<Given>> {
        let mut rules = Vec::new();
        for (name, value) in &self.given {
            match name.strip_suffix("-from") {
                Some(kind) => rules.extend(from_file(kind, Path::new(value))?),
                None => {
                    let place = format!("--{name}");
                    let text = value.to_str().ok_or_else(|| not_text(&place))?;
                    rules.push(Given { rule: rule(name, text, &place)?, place });
                }
            }
        }
        Ok(rules)
    }
}

fn not_text(place: &str) -> exit::Error {
    usage(format!("{place}: a pattern is UTF-8 text"), "write ? for each byte that is not")
}

fn rule(kind: &str, text: &str, place: &str) -> Result<Rule> {
    match (kind, Rule::parse(text)) {
        (_, Some(rule)) => Ok(rule),
        ("include", None) => Ok(Rule::take(text)),
        ("exclude", None) => Ok(Rule::leave(text)),
        _ => Err(usage(
            format!("{place}: {text:?} is not a filter rule"),
            "a rule is `+ PATTERN` to include or `- PATTERN` to exclude; quote it for the shell",
        )),
    }
}

fn from_file(kind: &str, path: &Path) -> Result<Vec<Given>> {
    let content = read(path)?;
    let mut rules = Vec::new();
    for (at, line) in content.split(|b| *b == b'\n').enumerate() {
        let place = format!("{}:{}", crate::output::shown(path), at + 1);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || b"#;".contains(&line[0]) {
            continue;
        }
        let text = std::str::from_utf8(line).map_err(|_| not_text(&place))?;
        rules.push(Given { rule: rule(kind, text, &place)?, place });
    }
    Ok(rules)
}

/// A file of the user's, or standard input.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let read = match path.as_os_str().as_bytes() {
        b"-" => std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut content),
        _ => fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content)),
    };
    read.map_err(|e| exit::of_file("read", path, &e))?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(usage(format!("{} is longer than 256 MiB", crate::output::shown(path)), "split it"));
    }
    Ok(content)
}

// What of the source is taken.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Selection")]
pub struct SelectionArgs {
    #[command(flatten)]
    pub rules: RuleArgs,
    /// Only these paths below SRC, one per line, and everything in those that are directories; `-` is standard input
    #[arg(long, value_name = "FILE", env = "THALWEG_FILES_FROM")]
    files_from: Option<PathBuf>,
    /// As --files-from, each path terminated by a NUL byte
    #[arg(long, value_name = "FILE", conflicts_with = "files_from", env = "THALWEG_FILES_FROM0")]
    files_from0: Option<PathBuf>,
    /// Exclude files smaller than this
    #[arg(long, value_name = "SIZE", value_parser = model::quantity::parse_bytes, env = "THALWEG_MIN_SIZE")]
    min_size: Option<u64>,
    /// Exclude files larger than this
    #[arg(long, value_name = "SIZE", value_parser = model::quantity::parse_bytes, env = "THALWEG_MAX_SIZE")]
    max_size: Option<u64>,
    /// Only files modified within this time: 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = model::quantity::parse_span, env = "THALWEG_NEWER_THAN")]
    newer_than: Option<Duration>,
    /// Only files not modified within this time
    #[arg(long, value_name = "TIME", value_parser = model::quantity::parse_span, env = "THALWEG_OLDER_THAN")]
    older_than: Option<Duration>,
}

impl SelectionArgs {
    /// The source is read as a directory's contents: paths of the list are below it.
    pub fn is_listed(&self) -> bool {
        self.files_from.is_some() || self.files_from0.is_some()
    }

    /// What is chosen of the listings that a command goes through.
    pub fn chosen(&self) -> Result<Chosen> {
        let choice = self.choice()?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
        Ok(Chosen { selection: choice.at(now), is_everything: choice.is_everything(), choice })
    }

    pub fn choice(&self) -> Result<Choice> {
        let rules = self.rules.rules()?.into_iter().map(|given| given.rule).collect();
        Ok(Choice {
            filter: filter(rules)?,
            size_bytes_min: self.min_size.unwrap_or(0),
            size_bytes_max: self.max_size,
            newer_than: self.newer_than,
            older_than: self.older_than,
            listed: self.listed()?,
        })
    }

    fn listed(&self) -> Result<Option<Listed>> {
        let (file, paths) = match (&self.files_from, &self.files_from0) {
            (Some(file), _) => (file, paths_of(&read(file)?, b'\n')),
            (None, Some(file)) => (file, paths_of(&read(file)?, b'\0')),
            (None, None) => return Ok(None),
        };
        let listed = Listed::new(paths).map_err(|(path, _)| {
            let hint = match path.contains(&b'\0') {
                true => "paths that each end with a NUL byte are read with --files-from0",
                false => "paths of a list are relative to SRC, without a leading slash and without ..",
            };
            let path = model::name::Escaped(&path).to_string();
            usage(format!("{}: {path} is not a path below the source", crate::output::shown(file)), hint)
        })?;
        Ok(Some(listed))
    }
}

/// What is chosen of listings. A path is looked at as `cp` gives it to an object at its destination: it begins with the name of what was
/// named, unless its contents were.
pub struct Chosen {
    pub choice: Choice,
    /// What it comes to at the time of the command.
    selection: Selection,
    pub is_everything: bool,
}

impl Chosen {
    /// What stands before the paths of a place.
    pub fn prefix<'a>(&self, place: &'a Place) -> &'a [u8] {
        match self.selection.listed.is_some() || place.names_contents() {
            true => b"",
            false => place.name().unwrap_or_default(),
        }
    }

    /// The same for listings of one place.
    pub fn behind<'a>(&'a self, prefix: &'a [u8]) -> trees::Chosen<'a> {
        trees::Chosen { selection: &self.selection, is_everything: self.is_everything, prefix }
    }

    /// Whether an object of a place is taken; what failed is told whatever is chosen.
    pub fn takes_record(&self, prefix: &[u8], record: &Record) -> bool {
        self.behind(prefix).takes(record)
    }
}

pub fn filter(rules: Vec<Rule>) -> Result<Filter> {
    Filter::new(rules).map_err(|why| usage(why, "docs/sync.md describes patterns"))
}

/// What a list to an endpoint may have.
pub fn check_list_to_send(choice: &Choice) -> Result<()> {
    let Some(listed) = &choice.listed else { return Ok(()) };
    let bytes: usize = listed.paths.iter().map(Vec::len).sum();
    if listed.paths.len() > LISTED_MAX || bytes > LISTED_BYTES_MAX {
        let message = format!("a list of {} paths is too long to send to an endpoint", listed.paths.len());
        return Err(usage(message, "split it: up to 65,536 paths and 512 KiB go with one command"));
    }
    Ok(())
}

/// Paths of a list. Lines may have comments; what ends in a NUL byte is taken as it is.
fn paths_of(content: &[u8], end: u8) -> Vec<Vec<u8>> {
    let is_comment = |path: &[u8]| end == b'\n' && b"#;".contains(&path[0]);
    let paths = content.split(|b| *b == end).filter(|path| !path.is_empty() && !is_comment(path));
    paths.map(<[u8]>::to_vec).collect()
}

// What becomes of what is there.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Decisions")]
pub struct DecisionArgs {
    /// When an existing file counts as changed: never, if its size differs, if its size or time differs, or if its
    /// content differs
    #[arg(long, value_name = "exists|size|mtime|checksum", env = "THALWEG_COMPARE")]
    compare: Option<Compare>,
    /// --compare checksum: both sides digest files of the same size, and only digests are sent
    #[arg(short, long, conflicts_with = "compare", env = "THALWEG_CHECKSUM")]
    checksum: bool,
    /// --compare size
    #[arg(long, conflicts_with_all = ["compare", "checksum"], env = "THALWEG_SIZE_ONLY")]
    size_only: bool,
    /// Skip files that are newer at the destination
    #[arg(short, long, env = "THALWEG_UPDATE")]
    update: bool,
    /// Create nothing new; only update what exists
    #[arg(long, env = "THALWEG_EXISTING")]
    existing: bool,
    /// For large files that replace others, send only the chunks that changed in place: both sides read their file,
    /// which pays where the link is slower than the disks. Chunks are 1 MiB unless --chunk-size says otherwise,
    /// compared by BLAKE3
    #[arg(long, env = "THALWEG_DELTA")]
    pub delta: bool,
    /// List and compare, print what would be done, and change nothing
    #[arg(short = 'n', long, env = "THALWEG_DRY_RUN")]
    pub dry_run: bool,
    /// Print a line for each change on standard output, with rsync's letters
    #[arg(long, env = "THALWEG_ITEMIZE")]
    itemize: bool,
}

impl DecisionArgs {
    /// `is_read` says that somebody reads changes without asking: programs.
    pub fn apply(&self, options: &mut TransferOptions, is_quiet: bool, is_read: bool) {
        options.compare = match self.compare {
            Some(compare) => compare,
            None if self.checksum => Compare::Checksum,
            None if self.size_only => Compare::Size,
            None => Compare::default(),
        };
        options.keeps_newer = self.update;
        options.only_existing = self.existing;
        options.is_dry_run = self.dry_run;
        options.is_delta = self.delta;
        if self.delta {
            options.digest = DigestAlgorithm::Blake3;
        }
        options.tells_changes = self.itemize || self.dry_run && (!is_quiet || is_read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        selection: SelectionArgs,
    }

    fn rules(args: &[&str]) -> Vec<String> {
        let line = Line::try_parse_from(std::iter::once("x").chain(args.iter().copied())).unwrap();
        line.selection.rules.rules().unwrap().iter().map(|given| given.rule.to_string()).collect()
    }

    #[test]
    fn rules_keep_their_order_across_flags_and_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rules");
        fs::write(&file, "# comment\n*.tmp\n\n+ keep.tmp\r\n; another\n").unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(
            rules(&["--exclude", "*.o", "--exclude-from", file, "--include", "a", "--filter", "- b", "--exclude", "c"]),
            ["- *.o", "- *.tmp", "+ keep.tmp", "+ a", "- b", "- c"]
        );
    }

    #[test]
    fn a_rule_without_a_sign_is_refused_with_a_hint() {
        let line = Line::try_parse_from(["x", "--filter", "*.o"]).unwrap();
        let error = line.selection.choice().unwrap_err();
        assert_eq!(error.message, "--filter: \"*.o\" is not a filter rule");
        assert!(error.hint.unwrap().contains("- PATTERN"));
    }

    #[test]
    fn lists_have_comments_unless_their_paths_end_in_nul() {
        assert_eq!(paths_of(b"a\n# b\n\nc/d\n", b'\n'), [b"a".to_vec(), b"c/d".to_vec()]);
        assert_eq!(paths_of(b"#a\0b\nc\0", b'\0'), [b"#a".to_vec(), b"b\nc".to_vec()]);
    }

    #[test]
    fn a_largest_size_is_within() {
        let line = Line::try_parse_from(["x", "--max-size", "10", "--min-size", "1KiB"]).unwrap();
        let bounds = line.selection.choice().unwrap().at(0).bounds;
        assert_eq!((bounds.size_bytes_end, bounds.size_bytes_min), (11, 1024));
    }
}
