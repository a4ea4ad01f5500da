//! Taking this program to a remote host that lacks it: a script for the remote shell, which asks for the program when the cache
//! folder there does not hold it.
//!
//! Invariants:
//! - What is run there has the digest of this program. The file is opened once, looked at through its descriptor, and run
//!   through it: whatever happens to its name meanwhile, what was looked at is what runs.
//! - Nobody but its owner, who is the user, may write to it, and a copy is made only in a directory that is the user's and
//!   that nobody else may enter. A copy gets its name only when it is whole.

use daemon::error::{Error, Result};
use model::Exit;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// What the script says when it wants the program on its standard input.
pub const NEED: &str = "thalweg deploy: need";
/// What it says, followed by its own, when the remote machine is of another kind.
pub const OTHER_MACHINE: &str = "thalweg deploy: machine ";
/// What it says when the copy did not come about.
pub const FAILED: &str = "thalweg deploy: failed";
/// Far longer than this program can be.
const PROGRAM_BYTES_MAX: u64 = 1 << 30;

/// This program, to be taken elsewhere.
pub struct Upload {
    file: File,
    bytes: u64,
    digest: String,
    machine: String,
}

impl Upload {
    /// Opens the program that runs.
    pub fn of_this_program() -> Result<Upload> {
        Upload::of(Path::new("/proc/self/exe"))
    }

    fn of(path: &Path) -> Result<Upload> {
        let failed = |e| Error::of_file("read this program", path, e);
        let mut file = File::open(path).map_err(failed)?;
        let mut content = Vec::new();
        (&mut file).take(PROGRAM_BYTES_MAX).read_to_end(&mut content).map_err(failed)?;
        let digest = data_encoding::HEXLOWER.encode(&net::sha256(&content));
        let machine = rustix::system::uname();
        let machine = format!("{} {}", machine.sysname().to_string_lossy(), machine.machine().to_string_lossy());
        let is_plain = machine.bytes().all(|b| b.is_ascii_alphanumeric() || b" _-.".contains(&b));
        if !is_plain {
            return Err(Error::new(Exit::Failed, "the kind of this machine could not be determined"));
        }
        Ok(Upload { file, bytes: content.len() as u64, digest, machine })
    }

    /// Kind of machine that this program runs on, as `uname -sm` says it.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// What the remote shell runs. Neither a single quote nor a backslash may stand in it.
    pub fn script(&self) -> String {
        let Upload { bytes, digest, machine, .. } = self;
        let name = format!("thalweg-{}-{}", env!("CARGO_PKG_VERSION"), &digest[..16]);
        format!(
            "m=\"$(uname -sm)\"; [ \"$m\" = \"{machine}\" ] || {{ echo; echo \"{OTHER_MACHINE}$m\"; exit 126; }}; \
             d=\"${{XDG_CACHE_HOME:-$HOME/.cache}}/thalweg\"; f=\"$d/{name}\"; x=/proc/self/fd/9; \
             s() {{ {{ sha256sum <\"$1\" || shasum -a 256 <\"$1\"; }} 2>/dev/null | cut -c1-64; }}; \
             o() {{ [ -O \"$2\" ] && case \"$(ls -ldL \"$2\")\" in $1rwx------*) true;; *) false;; esac; }}; \
             c() {{ [ -f \"$f\" ] && [ -r \"$f\" ] && exec 9<\"$f\" && o - $x && [ \"$(s $x)\" = {digest} ]; }}; \
             c || {{ ( \
             umask 077; t=\".{name}.$$\"; \
             mkdir -p \"$d\" && cd \"$d\" && [ -O . ] && chmod 700 . && o d . && rm -f \"$t\" && set -C && true >\"$t\" && \
             set +C && echo && echo \"{NEED}\" && head -c {bytes} >\"$t\" && \
             [ \"$(s \"$t\")\" = {digest} ] && chmod 700 \"$t\" && mv -f \"$t\" {name} || \
             {{ rm -f \"$t\"; echo; echo \"{FAILED}\"; exit 126; }} ) && c || exit 126; }}; \
             exec $x serve --stdio"
        )
    }

    /// Sends the program's bytes.
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let mut buffer = vec![0; 256 << 10];
        let mut at = 0;
        while at < self.bytes {
            let wanted = buffer.len().min((self.bytes - at) as usize);
            let read = self.file.read_at(&mut buffer[..wanted], at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to.write_all(&buffer[..read])?;
            at += read as u64;
        }
        to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    /// Runs the script in a home of its own, and gives it `content` where it asks.
    fn run(upload: &Upload, home: &Path, content: &[u8]) -> (Option<i32>, String) {
        let mut command = Command::new("sh");
        command.arg("-c").arg(upload.script()).env("HOME", home).env_remove("XDG_CACHE_HOME");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A script that needs nothing has ended by now, perhaps.
        let _ = stdin.write_all(content);
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    fn upload(dir: &Path) -> Upload {
        let program = dir.join("program");
        std::fs::write(&program, "#!/bin/sh\necho ran $1 $2\n").unwrap();
        Upload::of(&program).unwrap()
    }

    #[test]
    fn the_program_is_asked_for_once_kept_private_and_run() {
        let dir = tempfile::tempdir().unwrap();
        let upload = upload(dir.path());
        let mut content = Vec::new();
        upload.send(&mut content).unwrap();
        assert_eq!(run(&upload, dir.path(), &content), (Some(0), format!("\n{NEED}\nran serve --stdio\n")));
        assert_eq!(run(&upload, dir.path(), &[]), (Some(0), "ran serve --stdio\n".to_owned()));
        let kept: Vec<_> =
            std::fs::read_dir(dir.path().join(".cache/thalweg")).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].metadata().unwrap().permissions().mode() & 0o7777, 0o700);
        // What was changed there is not run.
        std::fs::write(kept[0].path(), "#!/bin/sh\necho evil\n").unwrap();
        assert_eq!(run(&upload, dir.path(), &content).1, format!("\n{NEED}\nran serve --stdio\n"));
    }

    #[test]
    fn what_arrives_cut_off_or_changed_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let upload = upload(dir.path());
        for content in [&b"#!/bin/sh\necho r"[..], &[b'x'; 1000]] {
            let (code, said) = run(&upload, dir.path(), content);
            assert_eq!((code, said), (Some(126), format!("\n{NEED}\n\n{FAILED}\n")));
            assert_eq!(std::fs::read_dir(dir.path().join(".cache/thalweg")).unwrap().count(), 0);
        }
    }

    /// What was planted under the name of the copy, or could be, is not run; nor is a directory of others used.
    #[test]
    fn what_others_could_have_put_there_is_not_run() {
        use std::os::unix::fs::{chown, symlink};
        let dir = tempfile::tempdir().unwrap();
        let upload = upload(dir.path());
        let mut content = Vec::new();
        upload.send(&mut content).unwrap();
        let cache = dir.path().join(".cache/thalweg");
        std::fs::create_dir_all(&cache).unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        let asked = (Some(0), format!("\n{NEED}\nran serve --stdio\n"));
        // The right content, but others may write to the directory, or to the file: a copy of its own is made.
        mode(&cache, 0o777);
        assert_eq!(run(&upload, dir.path(), &content), asked);
        assert_eq!(std::fs::metadata(&cache).unwrap().permissions().mode() & 0o7777, 0o700);
        let copy = std::fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
        mode(&copy, 0o722);
        assert_eq!(run(&upload, dir.path(), &content), asked);
        assert_eq!(run(&upload, dir.path(), &[]).0, Some(0));
        if !needs::root() {
            return;
        }
        chown(&copy, Some(65534), None).unwrap();
        assert_eq!(run(&upload, dir.path(), &content), asked, "a file of another user");
        chown(&cache, Some(65534), None).unwrap();
        std::fs::remove_file(&copy).unwrap();
        let refused = (Some(126), format!("\n{FAILED}\n"));
        assert_eq!(run(&upload, dir.path(), &content), refused, "a directory of another user");
        std::fs::rename(&cache, dir.path().join("theirs")).unwrap();
        symlink(dir.path().join("theirs"), &cache).unwrap();
        assert_eq!(run(&upload, dir.path(), &content), refused, "a link to one");
        assert_eq!(std::fs::read_dir(dir.path().join("theirs")).unwrap().count(), 0);
    }

    /// A program in the search path stands for an attacker who is exactly in time.
    #[test]
    fn what_was_looked_at_runs_whatever_becomes_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let upload = upload(dir.path());
        let mut content = Vec::new();
        upload.send(&mut content).unwrap();
        run(&upload, dir.path(), &content);
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let swap = "#!/bin/sh\n/usr/bin/sha256sum\nfor f in \"$HOME\"/.cache/thalweg/thalweg-*; do\n\
             echo 'echo evil' >\"$HOME/evil\"; chmod 700 \"$HOME/evil\"; mv -f \"$HOME/evil\" \"$f\"; done\n";
        std::fs::write(bin.join("sha256sum"), swap).unwrap();
        std::fs::set_permissions(bin.join("sha256sum"), std::fs::Permissions::from_mode(0o700)).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.arg("-c").arg(upload.script()).env("HOME", dir.path()).env_remove("XDG_CACHE_HOME").env("PATH", path);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "ran serve --stdio\n");
    }

    #[test]
    fn another_kind_of_machine_is_told_and_gets_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let upload = Upload { machine: "Plan9 mips".into(), ..upload(dir.path()) };
        let (code, said) = run(&upload, dir.path(), &[]);
        assert_eq!(code, Some(126));
        assert!(said.starts_with(&format!("\n{OTHER_MACHINE}Linux ")), "{said}");
        assert!(!dir.path().join(".cache").exists());
    }

    #[test]
    fn the_script_can_stand_in_single_quotes() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!upload(dir.path()).script().contains(['\'', '\\', '!', '\n']));
    }
}
