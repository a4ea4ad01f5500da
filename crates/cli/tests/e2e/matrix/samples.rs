//! Every option with a value that leaves the result as it is, or an expectation of its own.

use crate::bed::Bed;
use transfer::matrix::{Given, Value, Verbs, rules};

pub struct Sample {
    /// As they stand on the command line; the option itself comes first. `[DIR]` stands for the bed.
    pub words: &'static [&'static str],
    /// Options of one group do not go together; `alone` goes with none.
    pub group: &'static str,
    verbs: &'static str,
}

const fn of(words: &'static [&'static str], group: &'static str, verbs: &'static str) -> Sample {
    Sample { words, group, verbs }
}

const COPIES: &str = "cp sync follow";
const ALL: &str = "cp sync follow mv check";

static SAMPLES: &[Sample] = &[
    of(&["--fsync=never"], "", COPIES),
    of(&["--verify=none"], "verify", COPIES),
    of(&["--verify=reread"], "verify", COPIES),
    of(&["--digest=blake3"], "", ALL),
    of(&["--streams=2"], "plan", COPIES),
    of(&["--paths=all"], "paths", COPIES),
    of(&["--paths=127.0.0.1=127.0.0.1"], "paths", COPIES),
    of(&["--plan=[DIR]/plan"], "plan", COPIES),
    of(&["--plan=auto"], "plan", COPIES),
    of(&["--memory=64MiB"], "", COPIES),
    of(&["--cc=reno"], "", COPIES),
    of(&["--cipher=chacha20-poly1305"], "", COPIES),
    of(&["--engine=pread"], "", COPIES),
    of(&["--chunk-size=16MiB"], "", COPIES),
    of(&["--manifest=[DIR]/manifest-[N]"], "", COPIES),
    of(&["--report=[DIR]/report-[N]"], "", COPIES),
    of(&["--buffer=always"], "buffer", COPIES),
    of(&["--buffer=never"], "buffer", COPIES),
    of(&["--buffer=[DIR]/spool-[N]:64MiB"], "buffer", COPIES),
    of(&["--depth=4,4"], "plan", COPIES),
    of(&["--tuning-log=[DIR]/tuning-[N]"], "", COPIES),
    of(&["--wait=buffered"], "alone", COPIES),
    of(&["--no-clobber"], "", "cp sync follow mv"),
    of(&["--chmod=640"], "", COPIES),
    of(&["--retries=2"], "", COPIES),
    of(&["--nice=5"], "", COPIES),
    of(&["--reserve=[DIR]/reserve"], "", COPIES),
    of(&["--json"], "", ALL),
    of(&["--progress=plain"], "", "cp sync follow mv"),
    of(&["--explain"], "", COPIES),
    of(&["--quiet"], "", ALL),
    of(&["--verbose"], "", COPIES),
    of(&["--detach"], "alone", ALL),
    of(&["--recursive"], "", COPIES),
    of(&["--ssh=[DIR]/fake"], "", ALL),
    of(&["--remote-program=[DIR]/bin/thalweg"], "program", ALL),
    of(&["--deploy"], "program", ALL),
    of(&["--tunnel"], "", ALL),
    of(&["--ports=20000-40000"], "", ALL),
    of(&["--no-ssh"], "alone", ALL),
    of(&["--filter=- nothing"], "", ALL),
    of(&["--include=[abc]"], "", ALL),
    of(&["--exclude=nothing"], "", ALL),
    of(&["--filter-from=[DIR]/rules"], "", ALL),
    of(&["--include-from=[DIR]/patterns"], "", ALL),
    of(&["--exclude-from=[DIR]/none"], "", ALL),
    of(&["--files-from=[DIR]/list"], "list", ALL),
    of(&["--files-from0=[DIR]/list0"], "list", ALL),
    of(&["--min-size=0"], "", ALL),
    of(&["--max-size=1GiB"], "", ALL),
    of(&["--newer-than=30000d"], "", ALL),
    of(&["--older-than=1s"], "", ALL),
    of(&["--compare=size"], "compare", COPIES),
    of(&["--checksum"], "compare", COPIES),
    of(&["--size-only"], "compare", "cp sync follow check"),
    of(&["--update"], "", COPIES),
    of(&["--existing"], "alone", COPIES),
    of(&["--delta"], "", COPIES),
    of(&["--dry-run"], "alone", COPIES),
    of(&["--itemize"], "", COPIES),
    of(&["--delete"], "delete", "sync"),
    of(&["--max-delete=9", "--delete"], "delete", "sync"),
    of(&["--backup-dir=old"], "", "sync"),
    of(&["--archive"], "", COPIES),
    of(&["--perms"], "", COPIES),
    of(&["--owner"], "", COPIES),
    of(&["--group"], "", COPIES),
    of(&["--numeric-ids"], "", COPIES),
    of(&["--acls"], "", COPIES),
    of(&["--xattrs"], "", COPIES),
    of(&["--hard-links"], "", COPIES),
    of(&["--sparse"], "", COPIES),
    of(&["--devices"], "", COPIES),
    of(&["--specials"], "", COPIES),
    of(&["--special-files"], "", COPIES),
    of(&["--no-perms"], "", COPIES),
    of(&["--no-owner"], "", COPIES),
    of(&["--no-group"], "", COPIES),
    of(&["--times"], "", COPIES),
    of(&["--links"], "", COPIES),
    of(&["--compress=zstd"], "", COPIES),
    of(&["--bwlimit=1G"], "", COPIES),
    of(&["--class=low"], "", COPIES),
    of(&["--max-transfer=1GiB"], "", COPIES),
    of(&["--max-duration=1h"], "", COPIES),
    of(&["--timeout=60"], "", COPIES),
    of(&["--fail-fast"], "", COPIES),
    of(&["--keep-going"], "", COPIES),
    of(&["--until=quiet:1s"], "until", "follow"),
    of(&["--end=idle:1s"], "", "follow"),
    of(&["--show=prefix"], "", "follow"),
    of(&["--sealed-list=DONE"], "", "follow"),
    of(&["--append-only"], "", "follow"),
    of(&["--lag-alarm=60s"], "", "follow"),
    of(&["--one-way"], "", "check"),
];

/// They need a bed of their own (`replicas`, `hosts`).
pub const ELSEWHERE: &[&str] = &["replica", "hosts", "to-hosts"];

/// Every command has them.
const GENERAL: &[&str] = &["help", "config", "profile"];

pub fn samples(verb: &str) -> Vec<&'static Sample> {
    SAMPLES.iter().filter(|sample| sample.verbs.split(' ').any(|known| known == verb)).collect()
}

fn split(word: &str) -> (&str, &str) {
    let word = word.strip_prefix("--").unwrap();
    word.split_once('=').unwrap_or((word, ""))
}

pub fn given(sample: &Sample) -> Vec<Given> {
    let of = |word: &&str| {
        let (name, value) = split(word);
        Given { name: name.to_owned(), value: value.to_owned(), is_typed: true }
    };
    sample.words.iter().map(of).collect()
}

pub fn has(verb: &str, name: &str) -> bool {
    samples(verb).iter().any(|sample| split(sample.words[0]).0 == name)
}

/// Whether a verb takes an option, with the value that `value_of` gives.
pub fn takes(verb: &str, name: &str) -> bool {
    let names_hosts = name.ends_with("hosts") && ["cp", "sync", "follow"].contains(&verb);
    has(verb, name) || names_hosts
}

/// The value with which an option stands in the table of samples; an endpoint for those that stand elsewhere.
pub fn value_of(name: &str) -> &'static str {
    if ELSEWHERE.contains(&name) {
        return "siteb";
    }
    let found = SAMPLES.iter().map(|sample| split(sample.words[0])).find(|(known, _)| *known == name);
    found.map_or("", |(_, value)| value)
}

/// Of the program's options: those that no rule names stand in a line of the page that it prints.
#[test]
fn every_option_of_the_table_has_a_sample() {
    let page = String::from_utf8(Bed::new().run(&["matrix"]).succeeded().stdout).unwrap();
    let line = page.lines().find(|line| line.starts_with("Options that work wherever their command does")).unwrap();
    let free: Vec<&str> = line.split("`--").skip(1).filter_map(|part| part.split('`').next()).collect();
    assert!(free.contains(&"verbose"), "{line}");
    for name in free {
        assert!(SAMPLES.iter().any(|sample| given(sample)[0].name == name), "--{name}");
    }
    for flag in rules().flat_map(|rule| rule.flags).filter(|flag| !ELSEWHERE.contains(&flag.name)) {
        let is_it = |sample: &&Sample| given(sample)[0].name == flag.name;
        assert!(SAMPLES.iter().any(|sample| is_it(&sample)), "--{}", flag.name);
        if let Value::Is(word) = flag.value {
            assert!(SAMPLES.iter().any(|sample| is_it(&sample) && given(sample)[0].value == word), "{flag}");
        }
    }
}

#[test]
fn every_option_of_a_verb_has_a_sample_with_that_verb() {
    for (_, verb) in Verbs::NAMES {
        let help = String::from_utf8(Bed::new().run(&[verb, "--help"]).succeeded().stdout).unwrap();
        let option = |line: &str| {
            let words = line.trim_start();
            let is_option = line.len() - words.len() <= 6 && words.starts_with('-');
            let name = words.split("--").nth(1).filter(|_| is_option)?;
            name.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().map(str::to_owned)
        };
        let shown: Vec<String> = help.lines().filter_map(option).collect();
        assert!(shown.iter().any(|name| name == "json"), "{verb}: {help}");
        for name in shown.iter().map(String::as_str) {
            let is_known = takes(verb, name) || ELSEWHERE.contains(&name) || GENERAL.contains(&name);
            assert!(is_known, "{verb} --{name}");
        }
    }
}
