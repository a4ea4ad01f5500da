//! Verifies the files that a manifest or a list names, below one location.
//!
//! The list is read and asked about piece by piece: memory does not grow with it.

use super::args::Args;
use crate::exit::{self, Result, error};
use crate::output::list::{self, Lines};
use crate::output::{self, counted, duration, shown};
use crate::place::{PATHS_AT_ONCE, Place, Places, Side};
use model::files::{FileKind, Found, Question, Record, Sum, SumAlgorithm};
use model::manifest::{LINE_BYTES_MAX, Parser};
use model::name::Escaped;
use model::quantity::{ByteCount, Rate};
use model::{Exit, FailureKind, sum_list};
use serde_json::json;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Instant;

/// Questions under way at once at an endpoint, so that their round trips overlap.
const QUESTIONS_AT_ONCE: usize = 4;

pub fn verify(args: &Args, places: &Places, file: &Path, place: Place) -> Result<Exit> {
    let started = Instant::now();
    let reader: Box<dyn Read + Send> = match file.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(file).map_err(|e| exit::of_file("open manifest", file, &e))?),
    };
    let mut entries = Entries::open(reader, args.digest, args.zero).map_err(|why| unreadable(file, &why))?;
    let mut tally = Tally { lines: Lines::new(), is_json: args.json, ..Tally::default() };
    let checked = check(places, &place, file, &mut entries, &mut tally);
    tally.lines.flush();
    let is_whole = checked.is_ok();
    let ended = checked.and_then(|()| tally.verdict(&entries));
    if is_whole || args.json {
        tally.tell(args, entries.algorithm, started.elapsed().as_secs_f64(), &ended);
    }
    ended
}

/// Goes through the list, and tells of what is not as listed.
fn check(places: &Places, place: &Place, file: &Path, entries: &mut Entries, tally: &mut Tally) -> Result<()> {
    let at_once = if matches!(place.side, Side::Here) { 1 } else { QUESTIONS_AT_ONCE };
    loop {
        let mut batches = Vec::new();
        while batches.len() < at_once {
            let batch = entries.batch().map_err(|why| unreadable(file, &why))?;
            if batch.is_empty() {
                break;
            }
            batches.push(batch);
        }
        if batches.is_empty() {
            return Ok(());
        }
        let algorithm = entries.algorithm;
        let answers: Vec<Result<Vec<Option<Record>>>> = std::thread::scope(|scope| {
            let threads = batches.iter().map(|batch| {
                let builder = std::thread::Builder::new().name("verify".to_owned());
                builder.spawn_scoped(scope, move || ask(places, place, algorithm, batch)).map_err(|_| batch)
            });
            let threads: Vec<_> = threads.collect();
            let ended = threads.into_iter().map(|begun| match begun {
                Ok(thread) => thread.join().expect("asking does not panic"),
                // Where no thread is to be had, this one asks.
                Err(batch) => ask(places, place, algorithm, batch),
            });
            ended.collect()
        });
        for (batch, records) in batches.iter().zip(answers) {
            for (entry, record) in batch.iter().zip(records?) {
                tally.count(entry, record);
            }
        }
    }
}

fn unreadable(file: &Path, why: &str) -> exit::Error {
    let hint = "give a file written by `thalweg sum`, `gen`, `cp --manifest`, sha256sum, md5sum or b3sum";
    error(Exit::Usage, format!("read manifest {}: {why}", shown(file)), hint)
}

/// The record of each entry's file, in the order of the entries.
fn ask(places: &Places, place: &Place, algorithm: SumAlgorithm, batch: &[Entry]) -> Result<Vec<Option<Record>>> {
    let path = |entry: &Entry| {
        let path = match place.side {
            // The user's own list may name any file of this host.
            Side::Here if entry.path.starts_with(b"/") => entry.path.clone(),
            _ => place.below(&entry.path),
        };
        // On this host a link to a file is as good as the file, as for every program that checks lists.
        match place.side {
            Side::Here if Path::new(OsStr::from_bytes(&path)).is_symlink() => {
                let real = std::fs::canonicalize(OsStr::from_bytes(&path));
                real.map_or(path, |real| real.into_os_string().into_vec())
            }
            _ => path,
        }
    };
    let question = Question::List { paths: batch.iter().map(path).collect(), levels: 0, digest: Some(algorithm) };
    let mut records: Vec<Option<Record>> = vec![None; batch.len()];
    let answer = place.ask(&question, &places.interrupt, &mut |record| {
        let which = record.asked as usize;
        records[which].get_or_insert(record);
        true
    })?;
    answer.finished()?;
    Ok(records)
}

/// One line of the list.
struct Entry {
    digest: Box<[u8]>,
    /// A manifest says it.
    size_bytes: Option<u64>,
    path: Vec<u8>,
}

/// A list that is read line by line.
struct Entries {
    lines: Text,
    algorithm: SumAlgorithm,
    /// The digest was chosen by its length alone, which another one has too.
    is_guessed: bool,
    form: Form,
    first: Option<Entry>,
    line: u64,
}

enum Form {
    Manifest(Parser),
    List,
}

impl Entries {
    fn open(reader: Box<dyn Read + Send>, said: Option<SumAlgorithm>, is_zero: bool) -> Result<Entries, String> {
        let end = if is_zero { 0 } else { b'\n' };
        let mut lines = Text { reader: BufReader::with_capacity(64 << 10, reader), line: Vec::new(), end };
        let first = lines.next().map_err(|e| exit::plain(&e))?.unwrap_or_default().to_vec();
        match (Parser::new(&first), sum_list::parse(&first, is_zero)) {
            (Ok(parser), _) => {
                let algorithm = SumAlgorithm::ALL.into_iter().find(|one| one.in_chunks() == Some(parser.algorithm()));
                let algorithm = algorithm.expect("every digest of manifests is one of lists");
                let form = Form::Manifest(parser);
                Ok(Entries { lines, algorithm, is_guessed: false, form, first: None, line: 1 })
            }
            (Err(_), Some(entry)) => {
                let algorithm = entry.algorithm.or(said).unwrap_or(SumAlgorithm::Sha256);
                let is_guessed = entry.algorithm.is_none() && said.is_none();
                if said.is_some_and(|said| said != algorithm) || algorithm.digest_bytes() != entry.digest.len() {
                    return Err(format!("line 1: not a digest of the requested kind ({algorithm} fits)"));
                }
                let first = Some(Entry { digest: entry.digest, size_bytes: None, path: entry.path });
                Ok(Entries { lines, algorithm, is_guessed, form: Form::List, first, line: 1 })
            }
            (Err(e), None) => Err(e.to_string()),
        }
    }

    /// The next entries, as many as fit a question; none at the end.
    fn batch(&mut self) -> Result<Vec<Entry>, String> {
        const BYTES_MAX: usize = 64 << 10;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < PATHS_AT_ONCE && bytes < BYTES_MAX {
            let Some(entry) = self.next()? else { break };
            bytes += entry.path.len();
            batch.push(entry);
        }
        Ok(batch)
    }

    fn next(&mut self) -> Result<Option<Entry>, String> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            let is_zero = self.lines.end == 0;
            let Some(line) = self.lines.next().map_err(|e| exit::plain(&e))? else { return Ok(None) };
            self.line += 1;
            match &mut self.form {
                Form::Manifest(parser) => {
                    let Some(entry) = parser.line(line).map_err(|e| e.to_string())? else { continue };
                    let digest = Sum::from(&entry.digest).bytes;
                    return Ok(Some(Entry { digest, size_bytes: Some(entry.size_bytes), path: entry.path }));
                }
                Form::List if line.is_empty() || line.starts_with(b"#") => {}
                Form::List => {
                    let entry = sum_list::parse(line, is_zero)
                        .filter(|entry| entry.algorithm.is_none_or(|one| one == self.algorithm))
                        .filter(|entry| entry.digest.len() == self.algorithm.digest_bytes());
                    let wrong =
                        || format!("line {}: not of the form `DIGEST  PATH` with {}", self.line, self.algorithm);
                    let entry = entry.ok_or_else(wrong)?;
                    return Ok(Some(Entry { digest: entry.digest, size_bytes: None, path: entry.path }));
                }
            }
        }
    }
}

/// Lines of bounded length.
struct Text {
    reader: BufReader<Box<dyn Read + Send>>,
    line: Vec<u8>,
    end: u8,
}

impl Text {
    /// The next line without its end. A longer one than a manifest has comes in parts, which do not parse.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let bytes = (&mut self.reader).take(LINE_BYTES_MAX as u64 + 2).read_until(self.end, &mut self.line)?;
        if bytes == 0 {
            return Ok(None);
        }
        Ok(Some(self.line.strip_suffix(&[self.end]).unwrap_or(&self.line)))
    }
}

/// What a check found.
#[derive(Default)]
struct Tally {
    lines: Lines,
    is_json: bool,
    good: u64,
    bytes: u64,
    different: u64,
    unread: u64,
}

impl Tally {
    /// Counts a file and tells of one that is not as listed.
    fn count(&mut self, entry: &Entry, record: Option<Record>) {
        let is_other = |why: String| (why, false);
        let (why, is_unread) = match record.map(|record| record.found) {
            Some(Found::Object { status, .. }) if status.kind != FileKind::File => {
                is_other("not a regular file".into())
            }
            Some(Found::Object { status, .. }) if entry.size_bytes.is_some_and(|size| size != status.size_bytes) => {
                let listed = entry.size_bytes.unwrap_or_default();
                is_other(format!("{} bytes long, not {listed}", status.size_bytes))
            }
            Some(Found::Object { status, sum: Some(sum) }) if sum.bytes == entry.digest => {
                self.good += 1;
                self.bytes += status.size_bytes;
                return;
            }
            Some(Found::Object { sum: Some(_), .. }) => is_other("content differs".into()),
            Some(Found::Failed { kind: FailureKind::NotFound, .. }) => ("missing".into(), true),
            Some(Found::Failed { text, .. }) => (exit::plain(&Escaped(text.as_bytes())), true),
            _ => ("not looked at".into(), true),
        };
        self.different += u64::from(!is_unread);
        self.unread += u64::from(is_unread);
        let path = Escaped(&entry.path);
        match self.is_json {
            true => self.lines.json(&json!({"v": 1, "path": path.to_string(), "ok": false, "why": why})),
            false => self.lines.text(&format!("{path}: FAILED ({why})")),
        };
    }

    fn verdict(&self, entries: &Entries) -> Result<Exit> {
        let hint = match self.good == 0 && self.different > 0 && entries.is_guessed {
            true => "the list was assumed to be sha256; if b3sum wrote it, give --digest blake3",
            false => "copy these files again",
        };
        match (self.different, self.unread) {
            (0, 0) if self.good == 0 => Err(error(
                Exit::Failed,
                "the manifest names no files, so nothing was checked",
                "make it again, and look at the exit code of the command that makes it",
            )),
            (0, 0) => Ok(Exit::Done),
            (0, n) => {
                let files = counted(n, "file is", "files are");
                Err(error(Exit::Partial, format!("{files} missing or cannot be read"), hint))
            }
            (n, unread) => {
                let files = counted(n, "file differs", "files differ");
                let more = if unread > 0 {
                    format!(", {} missing or cannot be read", output::grouped(unread))
                } else {
                    String::new()
                };
                Err(error(Exit::Failed, format!("{files} from the manifest{more}"), hint))
            }
        }
    }

    fn tell(&mut self, args: &Args, algorithm: SumAlgorithm, seconds: f64, ended: &Result<Exit>) {
        if args.json {
            let code = ended.as_ref().map_or_else(|e| e.exit, |exit| *exit) as i32;
            let line = json!({"ok": self.good, "different": self.different, "unread": self.unread,
                "bytes": self.bytes, "by": algorithm.name(), "seconds": (seconds * 1e6).round() / 1e6, "code": code});
            self.lines.json(&list::done(line));
            self.lines.flush();
        } else if !args.quiet {
            let rate = Rate::over(self.bytes, seconds).bytes_per_second as u64;
            output::note(&format!(
                "{} as listed, {} by {algorithm} in {} ({}/s)",
                counted(self.good, "file is", "files are"),
                ByteCount(self.bytes),
                duration(seconds),
                ByteCount(rate)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &'static [u8], said: Option<SumAlgorithm>) -> Result<Entries, String> {
        Entries::open(Box::new(text), said, false)
    }

    #[test]
    fn the_digest_of_a_list_is_told_by_its_length_or_by_the_user() {
        let hex64 = b"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff  a\n";
        let found = open(hex64, None).unwrap();
        assert_eq!((found.algorithm, found.is_guessed), (SumAlgorithm::Sha256, true));
        let found = open(hex64, Some(SumAlgorithm::Blake3)).unwrap();
        assert_eq!((found.algorithm, found.is_guessed), (SumAlgorithm::Blake3, false));
        assert!(open(hex64, Some(SumAlgorithm::Md5)).is_err());
        assert_eq!(open(b"00112233  a\n", None).unwrap().algorithm, SumAlgorithm::Adler32);
        let mixed = open(b"00112233  a\n\n0011223344556677  b\n", None).unwrap().batch();
        assert_eq!(mixed.err().unwrap(), "line 3: not of the form `DIGEST  PATH` with adler32");
        assert!(open(b"hello\n", None).err().unwrap().starts_with("line 1: this is not a manifest"));
    }
}
