//! One place of each kind, with the same tree in it: directories, a bucket, a WebDAV server, an SFTP and a GridFTP server, two endpoints, two hosts
//! behind something that stands for ssh.

use super::Trial;
use crate::bed::{Bed, Ran, Server, behind, noise, until};
use crate::ssh::{Hosts, SFTP_SERVER};
use fakes::dav::Manners;
use fakes::{BUCKET, Fake, SECRET};
use model::Location;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use transfer::matrix::{Ends, Given, Verbs, check};

type Tree = BTreeMap<String, Vec<u8>>;

pub struct World {
    hosts: Hosts,
    bucket: Fake,
    dav: String,
    tree: Tree,
    generated: [Tree; 2],
    _endpoints: Vec<Server>,
}

fn tree() -> Tree {
    let of = |(name, bytes): (&str, usize)| (name.to_owned(), noise(bytes, bytes as u64));
    [("a", 70_000), ("c", 0), ("sub/b", 1 << 20)].map(of).into()
}

/// Writes a tree of an hour ago.
fn put(directory: &Path, tree: &Tree) {
    for (name, bytes) in tree {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        let then = SystemTime::now() - Duration::from_secs(3600);
        File::options().append(true).open(path).unwrap().set_modified(then).unwrap();
    }
}

/// What is below a directory, but for what is out of sight.
fn files(directory: &Path) -> Tree {
    let (mut found, mut open) = (Tree::new(), vec![directory.to_owned()]);
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().as_encoded_bytes().starts_with(b".thalweg") {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

impl World {
    /// `None` where something is missing, which is said.
    pub fn start() -> Option<World> {
        let hosts = Hosts::new(&["far", "twin"]);
        let bed = &hosts.bed;
        let is_full = !bed.run(&["ls", "s3://x/"]).stderr.contains("has no object stores");
        if !needs::met(is_full, "the program was built without --features full")
            || !needs::met(Path::new(SFTP_SERVER).exists(), "no sftp-server is installed")
            || !crate::ftp_servers::offer(bed, "hosts/far")
        {
            return None;
        }
        let (bucket, tree) = (Fake::start(), tree());
        for directory in ["here", "dav", "sftp", "grid", "root-sitea", "root-siteb", "hosts/far", "hosts/twin"] {
            put(&bed.path(directory).join("t"), &tree);
        }
        tree.iter().for_each(|(name, bytes)| bucket.put(&format!("t/{name}"), bytes));
        let dav = fakes::dav::start(&bed.path("dav"), Manners::default(), Arc::new(|_| None));
        let table = format!("[stores.fake]\nkind = \"s3\"\nendpoint = \"{}\"\nregion = \"us-east-1\"\n", bucket.url);
        let table = table + crate::ftp_servers::TABLE;
        bed.write("client/config_home/thalweg/config.toml", table.as_bytes());
        bed.write("plan", br#"{"v": 1, "interval": {"p5": 1, "p50": 2, "p95": 3}, "streams": 1, "settings": []}"#);
        bed.write("rules", b"- nothing\n");
        bed.write("patterns", b"[abc]\n");
        bed.write("none", b"nothing\n");
        bed.write("list", b"a\nc\nsub/b\n");
        bed.write("list0", b"a\0c\0sub/b\0");
        let reserve = bed.write("reserve", b"#!/bin/sh\necho '{\"id\":\"1\",\"state\":\"active\",\"text\":\"\"}'\n");
        fs::set_permissions(reserve, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let endpoints = ["sitea", "siteb"].map(|name| serve(bed, name)).into();
        let mut world = World { dav, tree, bucket, hosts, generated: Default::default(), _endpoints: endpoints };
        for (at, what) in ["gen:3x1KiB", "gen:1x1KiB"].into_iter().enumerate() {
            let to = format!("generated{at}/");
            world.run(&["cp", what, &to], None).succeeded();
            world.generated[at] = files(&world.hosts.bed.path(to));
        }
        Some(world)
    }

    fn run(&self, args: &[&str], input: Option<&Path>) -> Ran {
        let mut command = self.hosts.command(args);
        command.env("AWS_ACCESS_KEY_ID", "fake").env("AWS_SECRET_ACCESS_KEY", SECRET);
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        let mut command = behind(&["timeout", "60"], &command);
        if let Some(input) = input {
            command.stdin(Stdio::from(File::open(input).unwrap()));
        }
        self.hosts.bed.finish(command)
    }

    fn location(&self, end: Ends, path: &str, is_source: bool) -> String {
        let far = |names: [&'static str; 2]| names[usize::from(!is_source)];
        match end {
            _ if end == Ends::HOST.or(Ends::NULL) => "me@twin:null:".to_owned(),
            Ends::PATH => format!("here/{path}"),
            Ends::PIPE => "-".to_owned(),
            Ends::GENERATED => "gen:3x1KiB".to_owned(),
            Ends::NULL => "null:".to_owned(),
            Ends::BUCKET => format!("s3+fake://{BUCKET}/{path}"),
            Ends::DAV => format!("dav://{}/{path}", self.dav),
            Ends::WEB => format!("http://{}/{path}", self.dav),
            Ends::SFTP => format!("sftp://far{}/{path}", self.hosts.bed.path("sftp").display()),
            Ends::GRID => format!("sshftp://far{}/{path}", self.hosts.bed.path("grid").display()),
            Ends::ENDPOINT => format!("{}:{path}", far(["sitea", "siteb"])),
            Ends::HOST => format!("me@{}:{path}", far(["far", "twin"])),
            other => panic!("{other:?}"),
        }
    }

    /// Where the files of an end are on this machine, if they are.
    fn directory(&self, end: Ends, is_source: bool) -> Option<PathBuf> {
        let below = match (end, is_source) {
            (Ends::PATH, _) => "here",
            (Ends::DAV | Ends::WEB, _) => "dav",
            (Ends::SFTP, _) => "sftp",
            (Ends::GRID, _) => "grid",
            (Ends::ENDPOINT, true) => "root-sitea",
            (Ends::ENDPOINT, false) => "root-siteb",
            (Ends::HOST, true) => "hosts/far",
            (Ends::HOST, false) => "hosts/twin",
            _ => return None,
        };
        Some(self.hosts.bed.path(below))
    }

    fn found(&self, end: Ends, path: &str, is_source: bool) -> Tree {
        if let Some(directory) = self.directory(end, is_source) {
            return files(&directory.join(path));
        }
        let (state, below) = (self.bucket.state.lock().unwrap(), format!("{path}/"));
        let object = |(key, object): (&String, &fakes::Object)| {
            let name = key.strip_prefix(&below).filter(|name| !name.is_empty() && !name.ends_with('/'))?;
            Some((name.to_owned(), object.bytes.clone()))
        };
        state.objects.iter().filter_map(object).collect()
    }

    /// Runs one command and compares what it left.
    pub fn carry_out(&self, number: usize, trial: &Trial) -> Result<(), String> {
        let Trial { verb: (verb, name), from, to, with } = trial;
        let is_single = from.has(Ends::PIPE.or(Ends::WEB)) || to.has(Ends::PIPE);
        let (there, single) = (format!("d{number}"), format!("d{number}/f"));
        let mut words: Vec<String> = vec![(*name).to_owned()];
        let dir = self.hosts.bed.dir.path().display().to_string();
        let filled = |word: &&str| word.replace("[DIR]", &dir).replace("[N]", &number.to_string());
        words.extend(with.iter().flat_map(|sample| sample.words).map(filled));
        let options = words.clone();
        let asks = |flag: &str| options.iter().any(|word| word.split('=').next() == Some(flag));
        if *verb == Verbs::FOLLOW && !asks("--end") {
            words.extend(["--until=quiet:1s", "--end=idle:1s"].map(str::to_owned));
        }
        let moved = format!("m{number}");
        let ends = match *verb {
            Verbs::MV => {
                match self.directory(*from, true) {
                    Some(directory) => put(&directory.join(&moved), &self.tree),
                    None => {
                        self.tree.iter().for_each(|(name, bytes)| self.bucket.put(&format!("{moved}/{name}"), bytes))
                    }
                }
                [self.location(*from, &moved, true), self.location(*to, &there, false)]
            }
            Verbs::CHECK => {
                let path = if from.has(Ends::WEB) || to.has(Ends::WEB) { "t/a" } else { "t" };
                [self.location(*from, path, true), self.location(*to, path, false)]
            }
            _ if is_single => [self.location(*from, "t/a", true), self.location(*to, &single, false)],
            _ => [self.location(*from, "t/", true), self.location(*to, &format!("{there}/"), false)],
        };
        let is_one_generated = from.has(Ends::GENERATED) && is_single;
        words.extend(
            ends.map(|end| if is_one_generated && end.starts_with("gen:") { "gen:1x1KiB".to_owned() } else { end }),
        );
        let input = from.has(Ends::PIPE).then(|| self.hosts.bed.path("here/t/a"));
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = self.run(&args, input.as_deref());
        let wrong = |why: &str| Err(format!("thalweg {}: {why}\n{}", args.join(" "), ran.stderr));
        let is_waiting = asks("--wait") && ran.code == Some(9);
        if ran.code != Some(0) && !is_waiting {
            return wrong(&format!("exit code {:?}", ran.code));
        }
        if *verb == Verbs::CHECK || to.has(Ends::NULL) {
            return Ok(());
        }
        let expected = match () {
            () if asks("--existing") || asks("--dry-run") => Tree::new(),
            () if from.has(Ends::GENERATED) => self.generated[usize::from(is_single)].clone(),
            () if is_single => [("f".to_owned(), self.tree["a"].clone())].into(),
            () => self.tree.clone(),
        };
        if to.has(Ends::PIPE) {
            let is_it = expected.values().next().is_some_and(|bytes| *bytes == ran.stdout);
            return if is_it { Ok(()) } else { wrong("other bytes came out") };
        }
        // What is kept beside the files is no file of the source.
        let found = || {
            let mut found = self.found(*to, &there, false);
            assert_eq!(found.remove("DONE").is_some(), asks("--sealed-list"), "the list of what is complete");
            found
        };
        let is_there = || found() == expected;
        let is_moved = || *verb != Verbs::MV || self.found(*from, &moved, true).is_empty();
        if is_waiting || asks("--detach") {
            until("a job that was handed in", || is_there() && is_moved());
        }
        match (is_there(), is_moved()) {
            (true, true) => Ok(()),
            (true, false) => wrong("the source is still there"),
            _ => {
                let names: Vec<_> =
                    self.found(*to, &there, false).into_iter().map(|(name, bytes)| (name, bytes.len())).collect();
                wrong(&format!("found {names:?}"))
            }
        }
    }

    /// All files that anything could have written, and how often a server was asked.
    pub fn everything(&self) -> (Vec<String>, usize) {
        let mut paths: Vec<String> = Vec::new();
        for directory in ["here", "dav", "sftp", "grid", "root-sitea", "root-siteb", "hosts"] {
            let mut open = vec![self.hosts.bed.path(directory)];
            while let Some(at) = open.pop() {
                paths.push(at.display().to_string());
                open.extend(fs::read_dir(&at).into_iter().flatten().flatten().map(|entry| entry.path()));
            }
        }
        paths.sort();
        (paths, self.bucket.count(""))
    }

    /// The program says of a command what the table does.
    #[track_caller]
    pub fn is_refused(&self, verb: (Verbs, &'static str), from: Ends, to: Ends, given: &[Given]) {
        let ends = [self.location(from, "t/", true), self.location(to, "refused/", false)];
        let word = |given: &Given| match &given.value[..] {
            "" => format!("--{}", given.name),
            value => {
                format!("--{}={}", given.name, value.replace("[DIR]", &self.hosts.bed.dir.path().display().to_string()))
            }
        };
        let with: Vec<String> = given
            .iter()
            .map(|given| if given.name == "manifest" { "--manifest=none/m".to_owned() } else { word(given) })
            .collect();
        let args: Vec<&str> = [verb.1].into_iter().chain(with.iter().chain(&ends).map(String::as_str)).collect();
        let ran = self.run(&args, None);
        let location = |text: &String| Location::parse(text.as_ref()).unwrap();
        let is_endpoint = |name: &str| name.starts_with("site");
        let refused = check(verb, (&location(&ends[0]), &location(&ends[1])), given, &is_endpoint).unwrap_err();
        let told = format!("error: {}\nhint: {}", refused.text, refused.advice.unwrap());
        let told = self.hosts.bed.anonymous(&told);
        assert_eq!((ran.code, ran.error()), (Some(2), told), "thalweg {}: {}", args.join(" "), ran.stderr);
    }
}

fn serve(bed: &Bed, name: &str) -> Server {
    let (root, ticket, buffer) = (format!("root-{name}"), format!("ticket-{name}"), format!("buffer-{name}:64MiB"));
    fs::create_dir_all(bed.path(name)).unwrap();
    let args = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--root",
        &root,
        "--ticket-file",
        &ticket,
        "--name",
        name,
        "--buffer",
        &buffer,
    ];
    let server = bed.serve_with(bed.command(name, &args));
    bed.run(&["endpoint", "add", name, "--ticket-file", &ticket]).succeeded();
    server
}
