//! The ssh process: started, listened to until the remote side greets, and explained when it does not.
//!
//! One process for one connection, on the terminal it was given: ssh asks for passwords and unknown host keys there by
//! itself. What it and the remote host say on standard error is passed on, made harmless, line by line.
//!
//! Invariants:
//! - Nothing but the program itself is sent before the remote side has greeted, so that a shell never takes a request for
//!   commands.
//! - What is read before the greeting is bounded; so is what is kept of standard error.
//! - The process ends with the `Remote`, on its own if it does so in time, else killed.

use super::command::{Service, SshOptions, Target};
use super::deploy::{self, Upload};
use super::link::{Accept, Link};
use super::message::{self, Answer, Ready, Request, Role, VERSION};
use daemon::error::{Error, Result};
use model::Exit;
use model::name::{Escaped, is_unsafe};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the remote side says first, on a line of its own.
pub const GREETING: &str = "thalweg link 1";
const GREETING_OF_ANY_VERSION: &str = "thalweg link ";
/// What login scripts may say before it.
const NOISE_BYTES_MAX: u64 = 64 << 10;
const LINE_BYTES_MAX: u64 = 8 << 10;
const LINES_KEPT_MAX: usize = 32;
/// How often an interruption is looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// From the end of the remote side's input to the end of ssh.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// For the last lines of standard error, which belong to an error.
const WORDS_PATIENCE: Duration = Duration::from_millis(500);

/// Shows a line of talk.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// A running ssh process with a greeted remote side behind it.
pub struct Remote {
    process: Process,
    link: Link,
    messages: Receiver<Vec<u8>>,
    name: String,
}

impl Remote {
    /// Starts ssh and waits for the remote side. `accept` connects the channels that the remote side opens.
    pub fn start(
        options: &SshOptions,
        target: &Target,
        accept: Option<Accept>,
        tell: Tell,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Remote> {
        let upload = options.deploy.then(Upload::of_this_program).transpose()?;
        let mut command = options.command(target, upload.as_ref())?;
        let machine = upload.as_ref().map(|upload| upload.machine().to_owned()).unwrap_or_default();
        let (mut process, input, output) = spawn(&mut command, tell.clone())?;
        let (greeted, greeting) = channel();
        let note = tell.clone();
        let name = target.name.clone();
        let for_thread = name.clone();
        let greet = move || {
            let mut talk = Talk { input, output: BufReader::new(output), name: for_thread, note, upload };
            let said = talk.greet();
            // Without a listener the command was interrupted.
            let _ = greeted.send((said, talk.input, talk.output));
        };
        std::thread::Builder::new().name("ssh".into()).spawn(greet).map_err(|e| no_thread(&e))?;
        let (said, input, output) = wait_for(&greeting, interrupted)?.ok_or_else(|| no_thread(&"it ended"))?;
        match said {
            Ok(()) => {
                let (link, messages) = Link::start(output, input, accept).map_err(|e| no_thread(&e))?;
                Ok(Remote { process, link, messages, name })
            }
            Err(Unheard::Machine(theirs)) => Err(other_machine(&name, &theirs, &machine)),
            Err(Unheard::NotDeployed) => Err(not_deployed(&name)),
            Err(Unheard::OtherLink) => Err(Error::new(
                Exit::Version,
                format!("thalweg on {name} speaks another version of the protocol over ssh"),
            )
            .hint("bring thalweg to the same version on both hosts; --deploy takes this one there")),
            Err(Unheard::Noise) => Err(Error::new(
                Exit::Unreachable,
                format!("{name} does not answer like thalweg"),
            )
            .hint(
                "its login scripts must not print in sessions without a terminal: `ssh HOST true` must print nothing",
            )),
            Err(Unheard::Ended) => {
                drop((input, output));
                let status = process.end();
                Err(explain(&name, status, &process.words.kept(), options.deploy))
            }
        }
    }

    /// Asks the remote side to be something, and waits for its answer.
    pub fn ask(&self, role: Role, interrupted: &dyn Fn() -> bool) -> Result<Ready> {
        self.say(&Request { version: VERSION, role })?;
        match self.hear(interrupted)? {
            Some(Answer::Ready(ready)) => Ok(ready),
            Some(Answer::Failed(failed)) => Err(failed.into_error(&self.name)),
            None => Err(self.gone()),
        }
    }

    pub fn say(&self, message: &impl Serialize) -> Result<()> {
        self.link.send_message(&message::encode(message)).map_err(|_| self.gone())
    }

    /// The remote side's next message; `None` when the connection has ended.
    pub fn hear<T: DeserializeOwned>(&self, interrupted: &dyn Fn() -> bool) -> Result<Option<T>> {
        wait_for(&self.messages, interrupted)?.map(|bytes| message::decode(&self.name, &bytes)).transpose()
    }

    /// What the remote side says from here on is passed over, and holds up nothing else that comes through the link.
    pub fn hear_no_more(&mut self) {
        self.messages = channel().1;
    }

    pub fn link(&self) -> &Link {
        &self.link
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the ssh process still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.process.child.try_wait(), Ok(None))
    }

    fn gone(&self) -> Error {
        Error::new(Exit::Temporary, format!("the ssh connection to {} was lost", self.name))
            .hint("the same command continues where this one stopped")
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // On a thread: a network that is gone may hold up whoever writes at this moment.
        let link = self.link.clone();
        if std::thread::Builder::new().name("link-end".into()).spawn(move || link.close()).is_err() {
            let _ = self.process.child.kill();
        }
        self.process.end();
    }
}

/// A running ssh process, with a service of the remote host behind it. It ends when this is dropped.
pub struct Subsystem {
    process: Process,
    target: String,
    service: Service,
}

impl Subsystem {
    /// Starts ssh; whether it comes through shows when something is read. What comes with it is to be written to, and to be read from.
    pub fn start(
        options: &SshOptions,
        target: &Target,
        port: Option<u16>,
        service: Service,
        tell: Tell,
    ) -> Result<(Subsystem, File, File)> {
        let mut command = options.service(target, port, service)?;
        let (process, input, output) = match service {
            Service::Sftp => spawn_at_sockets(command, tell)?,
            // It takes a socket at its input for a connection in both directions, and answers there.
            Service::GridFtp => {
                let (process, input, output) = spawn(&mut command, tell)?;
                (process, input.into(), output.into())
            }
        };
        Ok((Subsystem { process, target: target.name.clone(), service }, File::from(input), File::from(output)))
    }

    /// Why it ended before it said anything. What came with it must be closed.
    pub fn explain(mut self) -> Error {
        let status = self.process.end();
        match status.and_then(|status| status.code()) {
            Some(255) => explain(&self.target, status, &self.process.words.kept(), false),
            _ => Error::new(Exit::Unreachable, format!("{} offers no {} over ssh", self.target, self.service.name()))
                .hint(self.service.advice()),
        }
    }
}

/// Starts ssh at two pipes.
fn spawn(command: &mut Command, tell: Tell) -> Result<(Process, ChildStdin, ChildStdout)> {
    let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()), tell)?;
    let pipes = (process.child.stdin.take(), process.child.stdout.take());
    let (Some(input), Some(output)) = pipes else { unreachable!("both were piped") };
    Ok((process, input, output))
}

/// Starts ssh at two pairs of sockets, which hold three times what pipes do: both sides wait less often. There is one for each direction: its
/// end is told by closing it, and whoever makes it non-blocking changes nothing of the other one.
fn spawn_at_sockets(mut command: Command, tell: Tell) -> Result<(Process, OwnedFd, OwnedFd)> {
    let pair = || {
        UnixStream::pair().map_err(|e| {
            Error::new(Exit::Failed, format!("open sockets to ssh: {e}")).hint("allow more open files (`ulimit -n`)")
        })
    };
    let ((input, to_read), (output, to_write)) = (pair()?, pair()?);
    // The command keeps these here for as long as it lives, and so does not outlive this function: ssh alone is to have them.
    command.stdin(OwnedFd::from(to_read)).stdout(OwnedFd::from(to_write));
    Ok((Process::start(&mut command, tell)?, input.into(), output.into()))
}

/// Waits for the next of what a thread sends, and looks for an interruption meanwhile; `None` when nothing more comes.
fn wait_for<T>(from: &Receiver<T>, interrupted: &dyn Fn() -> bool) -> Result<Option<T>> {
    loop {
        match from.recv_timeout(LOOK_INTERVAL) {
            Ok(found) => return Ok(Some(found)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if interrupted() => {
                return Err(Error::new(Exit::Interrupted, "stopped before anything was copied")
                    .hint("nothing was changed; give the same command again"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Why there was no greeting.
enum Unheard {
    Ended,
    Noise,
    OtherLink,
    Machine(String),
    NotDeployed,
}

struct Talk {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    name: String,
    note: Tell,
    upload: Option<Upload>,
}

impl Talk {
    /// Reads lines until the remote side greets, and sends the program where it is asked for.
    fn greet(&mut self) -> std::result::Result<(), Unheard> {
        let mut noise_bytes = 0;
        loop {
            let mut line = Vec::new();
            let read = (&mut self.output).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            if read.unwrap_or(0) == 0 {
                return Err(Unheard::Ended);
            }
            noise_bytes += line.len() as u64;
            let line = String::from_utf8_lossy(&line);
            match line.trim_end() {
                GREETING => return Ok(()),
                deploy::FAILED => return Err(Unheard::NotDeployed),
                deploy::NEED => {
                    let Some(upload) = &self.upload else { return Err(Unheard::Noise) };
                    (self.note)(&format!("taking thalweg to {}", self.name));
                    upload.send(&mut self.input).map_err(|_| Unheard::Ended)?;
                }
                line if line.starts_with(GREETING_OF_ANY_VERSION) => return Err(Unheard::OtherLink),
                line => {
                    if let Some(theirs) = line.strip_prefix(deploy::OTHER_MACHINE) {
                        return Err(Unheard::Machine(theirs.to_owned()));
                    }
                }
            }
            if noise_bytes > NOISE_BYTES_MAX {
                return Err(Unheard::Noise);
            }
        }
    }
}

struct Process {
    child: Child,
    words: Words,
}

impl Process {
    /// Starts ssh and listens to what it says on standard error.
    fn start(command: &mut Command, tell: Tell) -> Result<Process> {
        let program = Escaped(command.get_program().as_encoded_bytes()).to_string();
        let mut child = command.stderr(Stdio::piped()).spawn().map_err(|e| {
            Error::new(Exit::Usage, format!("start {program}: {e}"))
                .hint("install an ssh client, or name one with --ssh COMMAND")
        })?;
        let Some(errors) = child.stderr.take() else { unreachable!("it was piped") };
        Ok(Process { child, words: Words::listen(errors, tell) })
    }

    /// Waits for the process, and kills it when it does not end; `None` then.
    fn end(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + END_PATIENCE;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => std::thread::park_timeout(Duration::from_millis(5)),
                Ok(status) => {
                    self.words.wait();
                    return status;
                }
                Err(_) => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that ended is only asked for once more. One that did not greet waits for nothing of value.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What comes on standard error: passed on, and the last lines kept.
struct Words {
    kept: Arc<Mutex<Vec<String>>>,
    ended: Receiver<()>,
}

impl Words {
    fn listen(errors: ChildStderr, tell: Tell) -> Words {
        let kept: Arc<Mutex<Vec<String>>> = Arc::default();
        let for_thread = kept.clone();
        let (ends, ended) = channel();
        let listen = move || {
            let mut errors = BufReader::new(errors);
            let mut line = Vec::new();
            while (&mut errors).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).unwrap_or(0) > 0 {
                let shown = harmless(&String::from_utf8_lossy(line.trim_ascii_end()));
                line.clear();
                tell(&shown);
                let mut kept = for_thread.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == LINES_KEPT_MAX {
                    kept.remove(0);
                }
                kept.push(shown);
            }
            drop(ends);
        };
        // Without the thread nothing is passed on; the copy does not depend on it.
        let _ = std::thread::Builder::new().name("ssh-words".into()).spawn(listen);
        Words { kept, ended }
    }

    /// Waits for the last line, but not for a process that ssh has left behind with its standard error.
    fn wait(&self) {
        let _ = self.ended.recv_timeout(WORDS_PATIENCE);
    }

    fn kept(&self) -> Vec<String> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Another host's words so that they cannot control a terminal.
pub fn harmless(text: &str) -> String {
    let harmless = |c: char| if c != '\t' && is_unsafe(c) { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(harmless).collect()
}

/// An ssh process that ended without a greeting, by its code and what it said.
fn explain(name: &str, status: Option<ExitStatus>, words: &[String], is_deployed: bool) -> Error {
    let says = |text: &str| words.iter().any(|line| line.contains(text));
    match status.and_then(|status| status.code()) {
        Some(255) if says("HOST IDENTIFICATION HAS CHANGED") || says("Host key verification failed") => {
            Error::new(Exit::Authentication, format!("ssh does not accept the host key of {name}")).hint(
                "nothing was sent; find out why it is unknown or has changed before you go on; once `ssh HOST` works, \
                     this does",
            )
        }
        Some(255) if says("Permission denied") => {
            Error::new(Exit::Authentication, format!("{name} does not let this user log in over ssh"))
                .hint("once `ssh HOST` works, this does; USER@HOST names another user there")
        }
        Some(255) if says("Could not resolve hostname") => {
            Error::new(Exit::Unreachable, format!("there is no host {name}")).hint(
                "check its name; `thalweg endpoint ls` lists the endpoints, and a local file with a colon is ./FILE",
            )
        }
        Some(255) => Error::new(Exit::Unreachable, format!("ssh does not reach {name}"))
            .hint("ssh's reason is above; once `ssh HOST` works, this does"),
        Some(127) if !is_deployed => Error::new(Exit::Unreachable, format!("there is no thalweg on {name}")).hint(
            "--deploy copies this program to the user's cache directory there; or install it there, or name it with \
             --remote-program PATH",
        ),
        Some(126 | 127) => Error::new(Exit::Unreachable, format!("thalweg cannot be run on {name}")).hint(
            "the reason is above; the file must be a program for that machine, on a file system not mounted noexec",
        ),
        Some(2) if says("--stdio") => {
            Error::new(Exit::Version, format!("thalweg on {name} is too old to be used over ssh"))
                .hint("install this version there, or let --deploy copy it there")
        }
        Some(_) if is_deployed && (says("GLIBC") || says("error while loading shared libraries")) => {
            Error::new(Exit::Unreachable, format!("this program does not run on {name}"))
                .hint("it needs libraries that are missing there: build it there, or build a static one here")
        }
        Some(code) => Error::new(Exit::Unreachable, format!("thalweg did not start on {name} (code {code})"))
            .hint("the reason is above; `ssh HOST thalweg --version` must print a version"),
        None => Error::new(Exit::Unreachable, format!("the ssh connection to {name} was lost"))
            .hint("try again; the same command continues where this one stopped"),
    }
}

fn other_machine(name: &str, theirs: &str, ours: &str) -> Error {
    let theirs = Escaped(&theirs.as_bytes()[..theirs.len().min(100)]).to_string();
    Error::new(Exit::Unreachable, format!("{name} is {theirs}, and this program is for {ours}"))
        .hint("build thalweg for that machine and install it there; --remote-program PATH names it")
}

fn not_deployed(name: &str) -> Error {
    Error::new(Exit::Unreachable, format!("thalweg could not be stored on {name}")).hint(
        "the user's cache folder there ($XDG_CACHE_HOME or ~/.cache) must be writable and have room, thalweg's folder in it \
         must belong to the user, and the host needs sha256sum",
    )
}

fn no_thread(e: &impl std::fmt::Display) -> Error {
    Error::new(Exit::Failed, format!("start a thread: {e}"))
}

/// The remote side's greeting.
pub fn greet(output: &mut impl Write) -> io::Result<()> {
    write!(output, "\n{GREETING}\n")?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn each_end_of_ssh_has_its_code_and_a_way_out() {
        let explained =
            |code: i32, word: &str| explain("far", Some(ExitStatus::from_raw(code << 8)), &[word.to_owned()], false);
        for (code, word, exit) in [
            (255, "Host key verification failed.", Exit::Authentication),
            (255, "me@far: Permission denied (publickey).", Exit::Authentication),
            (255, "ssh: Could not resolve hostname far: Name or service not known", Exit::Unreachable),
            (255, "ssh: connect to host far port 22: Connection refused", Exit::Unreachable),
            (127, "", Exit::Unreachable),
            (126, "", Exit::Unreachable),
            (2, "error: unexpected argument '--stdio' found", Exit::Version),
            (1, "", Exit::Unreachable),
        ] {
            let error = explained(code, word);
            assert_eq!(error.exit, exit, "{code} {word}");
            assert!(error.hint.is_some());
        }
        assert!(explained(127, "").hint.unwrap().contains("--deploy"));
        assert_eq!(explain("far", None, &[], false).exit, Exit::Unreachable);
    }

    fn started(script: &str) -> Result<Remote> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fake");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        let options = SshOptions { command: Some(format!("sh {}", path.display())), ..SshOptions::default() };
        let target = Target::parse("far").unwrap();
        Remote::start(&options, &target, None, Arc::new(|_: &str| {}), &|| false)
    }

    #[test]
    fn what_login_scripts_say_is_passed_over_up_to_a_bound() {
        let mut remote =
            started("echo welcome; printf 'no newline'; printf '\\nthalweg link 1\\n'; cat >/dev/null").ok().unwrap();
        assert!(remote.is_alive());
        let error = started("yes welcome").err().unwrap();
        assert!(error.message.contains("does not answer like thalweg"), "{error}");
        let error = started("echo thalweg link 2").err().unwrap();
        assert_eq!(error.exit, Exit::Version);
    }

    #[test]
    fn a_program_that_is_not_there_and_one_that_ends_are_told_apart() {
        let options = SshOptions { command: Some("/nonexistent/ssh".into()), ..SshOptions::default() };
        let target = Target::parse("far").unwrap();
        let error = Remote::start(&options, &target, None, Arc::new(|_: &str| {}), &|| false).err().unwrap();
        assert_eq!(error.exit, Exit::Usage);
        assert!(started("exit 127").err().unwrap().message.contains("there is no thalweg on far"));
    }

    #[test]
    fn sftp_is_reached_by_sockets_and_gridftp_by_pipes_and_both_hear_the_end() {
        for (service, ends) in [(Service::Sftp, "socket socket "), (Service::GridFtp, "pipe pipe ")] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("fake");
            let script = "for end in 0 1; do [ -S /proc/self/fd/$end ] && printf 'socket '\n\
                          [ -p /proc/self/fd/$end ] && printf 'pipe '; done; exec cat\n";
            std::fs::write(&path, script).unwrap();
            let options = SshOptions { command: Some(format!("sh {}", path.display())), ..SshOptions::default() };
            let target = Target::parse("far").unwrap();
            let started = Subsystem::start(&options, &target, None, service, Arc::new(|_: &str| {}));
            let (_subsystem, mut input, mut output) = started.ok().unwrap();
            input.write_all(b"said").unwrap();
            drop(input);
            let mut heard = String::new();
            output.read_to_string(&mut heard).unwrap();
            assert_eq!(heard, format!("{ends}said"));
        }
    }

    #[test]
    fn what_the_other_host_says_cannot_control_a_terminal() {
        assert_eq!(harmless("a\tb\\ \u{e9}"), "a\tb\\ \u{e9}");
        assert_eq!(harmless("\u{1b}[2J\u{202e}x\u{9b}"), "\u{fffd}[2J\u{fffd}x\u{fffd}");
    }

    #[test]
    fn an_interruption_is_noticed_while_ssh_waits() {
        let options = SshOptions { command: Some("sh -c 'exec sleep 60' x".into()), ..SshOptions::default() };
        let target = Target::parse("far").unwrap();
        let error = Remote::start(&options, &target, None, Arc::new(|_: &str| {}), &|| true).err().unwrap();
        assert_eq!(error.exit, Exit::Interrupted);
    }
}
