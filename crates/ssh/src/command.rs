//! The command line of ssh: the user's own program, its destination, and what it is to run there.
//!
//! Invariants:
//! - A destination or a program's path never becomes an option, and never code of the remote shell: what could is refused.
//! - What runs there is one word for the far login shell, in single quotes and without a quote or backslash inside, which
//!   sh, bash, zsh, csh and fish read alike.

use super::deploy::Upload;
use daemon::error::{Error, Result};
use model::Exit;
use model::name::Escaped;
use std::process::Command;

/// How remote hosts are reached over ssh.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SshOptions {
    /// The ssh program and arguments for it, in words as a shell would read them; `ssh` by default.
    pub command: Option<String>,
    /// Where `thalweg` is on the remote host; found by its search path by default.
    pub remote_program: Option<String>,
    /// Take this program there where it is not yet.
    pub deploy: bool,
    /// Everything through the ssh connection.
    pub is_tunnel_only: bool,
    /// Ports that the remote side may listen on; any by default.
    pub ports: Option<(u16, u16)>,
}

/// A host that ssh can reach: `[USER@]HOST`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// As the user wrote it.
    pub name: String,
    /// For ssh: without brackets around an IPv6 address.
    destination: String,
    /// Without the user.
    pub host: String,
}

/// What speaks at the other end of ssh, on hosts without this program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// The subsystem of the ssh server.
    Sftp,
    /// A GridFTP server that its administrator, or the user, has allowed for ssh.
    GridFtp,
}

/// As `globus-url-copy` starts one.
const GRIDFTP_SCRIPT: &str = "sh -c 'test -x \"$HOME/.globus/sshftp\" && exec \"$HOME/.globus/sshftp\"; \
                              test -x /etc/grid-security/sshftp || exit 127; exec /etc/grid-security/sshftp'";

impl Service {
    pub(super) fn name(self) -> &'static str {
        match self {
            Service::Sftp => "sftp",
            Service::GridFtp => "GridFTP",
        }
    }

    pub(super) fn advice(self) -> &'static str {
        match self {
            Service::Sftp => {
                "its administrator can switch the subsystem on in sshd_config; ssh's reason, if it gave one, is above"
            }
            Service::GridFtp => {
                "`globus-gridftp-server-enable-sshftp` switches it on there, with -nonroot for yourself alone; ssh's reason, if it gave \
                 one, is above"
            }
        }
    }
}

impl Target {
    pub fn parse(name: &str) -> Result<Target> {
        let wrong = || {
            let shown = Escaped(&name.as_bytes()[..name.len().min(200)]).to_string();
            Error::new(Exit::Usage, format!("{shown:?} cannot name a host"))
                .hint("a host is HOST or USER@HOST; a local file with a colon is ./FILE")
        };
        let (user, host) = match name.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, name),
        };
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let is_fit = |text: &str| {
            !text.is_empty() && !text.starts_with('-') && !text.chars().any(|c| c.is_control() || c.is_whitespace())
        };
        let is_host =
            is_fit(bare) && !bare.contains(['/', '[', ']', '\'', '"', '`', '$', '\\', ';', '|', '&', '<', '>']);
        if !is_host || !user.is_none_or(|user| is_fit(user) && !user.contains(['\'', '"', '`', '$', ';', '|', '&'])) {
            return Err(wrong());
        }
        let destination = user.map_or_else(|| bare.to_owned(), |user| format!("{user}@{bare}"));
        Ok(Target { name: name.to_owned(), destination, host: bare.to_owned() })
    }
}

impl SshOptions {
    /// The process to start.
    pub(super) fn command(&self, target: &Target, upload: Option<&Upload>) -> Result<Command> {
        let (mut command, is_openssh) = self.client()?;
        command.args(is_openssh.then_some("--"));
        command.arg(&target.destination).arg(format!("sh -c '{}'", self.script(upload)?));
        Ok(command)
    }

    /// The process that speaks to a service of the remote host.
    pub(super) fn service(&self, target: &Target, port: Option<u16>, service: Service) -> Result<Command> {
        let (mut command, is_openssh) = self.client()?;
        if let Some(port) = port {
            command.arg("-p").arg(port.to_string());
        }
        if service == Service::Sftp {
            command.arg("-s");
        }
        command.args(is_openssh.then_some("--")).arg(&target.destination).arg(match service {
            Service::Sftp => "sftp",
            Service::GridFtp => GRIDFTP_SCRIPT,
        });
        Ok(command)
    }

    /// The ssh program with its arguments, and whether it is OpenSSH's.
    fn client(&self) -> Result<(Command, bool)> {
        let words = self.words()?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let is_openssh = words[0].rsplit('/').next() == Some("ssh");
        if is_openssh {
            // As scp does: what the configuration asks for in interactive sessions would be in the way.
            command.args([
                "-x",
                "-a",
                "-T",
                "-oPermitLocalCommand=no",
                "-oClearAllForwardings=yes",
                "-oRemoteCommand=none",
            ]);
            // ssh ends 30 s after the network has gone, though nobody sends: before the mover gives a session up
            // (`mover::limits::CONTROL_TIMEOUT`), which is then carried by another ssh.
            command.args(["-oServerAliveInterval=5", "-oServerAliveCountMax=5"]);
        }
        Ok((command, is_openssh))
    }

    /// The words of the ssh program's command, at least one.
    fn words(&self) -> Result<Vec<String>> {
        let text = self.command.as_deref().unwrap_or("ssh");
        let words = split_words(text).filter(|words| !words.is_empty());
        words.ok_or_else(|| {
            Error::new(Exit::Usage, format!("{:?} is no command", Escaped(text.as_bytes()).to_string()))
                .hint("--ssh is a program and its arguments, such as --ssh 'ssh -p 2222'")
        })
    }

    /// What the remote shell runs.
    fn script(&self, upload: Option<&Upload>) -> Result<String> {
        if let Some(upload) = upload {
            return Ok(upload.script());
        }
        let Some(path) = &self.remote_program else {
            // Where people put programs of their own, which shells without a terminal often do not look for.
            return Ok("PATH=\"$PATH:$HOME/.local/bin:$HOME/bin:$HOME/.cargo/bin\"; \
                       command -v thalweg >/dev/null || exit 127; exec thalweg serve --stdio"
                .to_owned());
        };
        let (home, rest) = path.strip_prefix("~/").map_or(("", &path[..]), |rest| ("$HOME/", rest));
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-+ @%,=:".contains(&b);
        if rest.is_empty() || rest.starts_with('-') || !rest.bytes().all(is_plain) {
            let shown = Escaped(path.as_bytes()).to_string();
            return Err(Error::new(Exit::Usage, format!("{shown:?} cannot be the path of the remote program"))
                .hint("a path has letters, digits, spaces and / . _ - + @ % , = : and may begin with ~/"));
        }
        Ok(format!("command -v \"{home}{rest}\" >/dev/null || exit 127; exec \"{home}{rest}\" serve --stdio"))
    }
}

/// Reads `FIRST-LAST`, or one port.
pub fn read_ports(text: &str) -> std::result::Result<(u16, u16), String> {
    let wrong = || format!("{text:?} is not a range of ports such as 7740-7760");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
    let (first, last) = (port(first)?, port(last)?);
    if first <= last { Ok((first, last)) } else { Err(wrong()) }
}

/// Words as a shell reads them: quotes and backslashes, nothing else. `None` for a quote that is not closed.
fn split_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => word.get_or_insert_default().push(chars.next()?),
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(options: &SshOptions, target: &str) -> Result<Vec<String>> {
        let command = options.command(&Target::parse(target)?, None)?;
        let args = command.get_args().map(|arg| arg.to_str().unwrap().to_owned());
        Ok(std::iter::once(command.get_program().to_str().unwrap().to_owned()).chain(args).collect())
    }

    #[test]
    fn a_destination_stands_behind_all_options_and_its_brackets_are_gone() {
        let words = line(&SshOptions::default(), "me@[2001:db8::1]").unwrap();
        assert_eq!(words[0], "ssh");
        let end = words.iter().position(|word| word == "--").unwrap();
        assert_eq!(words[end + 1], "me@2001:db8::1");
        assert_eq!(words.len(), end + 3);
        assert!(words[end + 2].starts_with("sh -c '") && words[end + 2].ends_with(" serve --stdio'"));
    }

    /// A session over an ssh that hangs is never replaced; the user's own numbers come first, and so hold.
    #[test]
    fn ssh_notices_by_itself_that_the_network_has_gone() {
        let target = Target::parse("far").unwrap();
        let options = SshOptions { command: Some("ssh -oServerAliveInterval=60".into()), ..SshOptions::default() };
        let commands = [options.command(&target, None), options.service(&target, None, Service::Sftp)];
        for command in commands.map(Result::unwrap) {
            let words: Vec<_> = command.get_args().map(|arg| arg.to_str().unwrap()).collect();
            let alive: Vec<_> = words.iter().filter(|word| word.starts_with("-oServerAlive")).collect();
            assert_eq!(alive, [&"-oServerAliveInterval=60", &"-oServerAliveInterval=5", &"-oServerAliveCountMax=5"]);
        }
    }

    #[test]
    fn a_subsystem_is_named_behind_the_destination_and_its_port_before() {
        let target = Target::parse("me@[2001:db8::1]").unwrap();
        let command = SshOptions::default().service(&target, Some(2222), Service::Sftp).unwrap();
        let words: Vec<_> = command.get_args().map(|arg| arg.to_str().unwrap()).collect();
        assert!(words.ends_with(&["-p", "2222", "-s", "--", "me@2001:db8::1", "sftp"]), "{words:?}");
        let other = SshOptions { command: Some("/opt/other".into()), ..SshOptions::default() };
        let command = other.service(&target, None, Service::Sftp).unwrap();
        let words: Vec<_> = command.get_args().map(|arg| arg.to_str().unwrap()).collect();
        assert_eq!(words, ["-s", "me@2001:db8::1", "sftp"]);
    }

    #[test]
    fn another_program_gets_its_own_arguments_and_none_of_openssh() {
        let options = SshOptions { command: Some("/opt/my\\ ssh -p '22 22' \"a'b\"".into()), ..SshOptions::default() };
        let words = line(&options, "host").unwrap();
        assert_eq!(words[..5], ["/opt/my ssh", "-p", "22 22", "a'b", "host"]);
        assert_eq!(words.len(), 6);
        for wrong in ["", " ", "ssh 'open", "ssh \\"] {
            assert!(line(&SshOptions { command: Some(wrong.into()), ..SshOptions::default() }, "h").is_err());
        }
    }

    #[test]
    fn what_could_be_an_option_or_code_names_no_host_and_no_program() {
        for name in ["-oProxyCommand=x", "a b", "me@-x", "-l@host", "@host", "me@", "", "a;b", "$(x)", "a'b", "x\ny"] {
            assert_eq!(Target::parse(name).unwrap_err().exit, Exit::Usage, "{name:?}");
        }
        for path in ["a'b", "a\"b", "$(x)", "`x`", "a\\b", "-x", "", "~/", "a;b", "a\nb", "x!y"] {
            let options = SshOptions { remote_program: Some(path.into()), ..SshOptions::default() };
            assert_eq!(line(&options, "host").unwrap_err().exit, Exit::Usage, "{path:?}");
        }
    }

    #[test]
    fn a_home_directory_is_that_of_the_far_host() {
        let options = SshOptions { remote_program: Some("~/my bin/thalweg".into()), ..SshOptions::default() };
        let words = line(&options, "host").unwrap();
        assert!(words.last().unwrap().contains("exec \"$HOME/my bin/thalweg\" serve --stdio"));
    }

    #[test]
    fn ranges_of_ports_go_upwards() {
        assert_eq!(read_ports("7740-7760"), Ok((7740, 7760)));
        assert_eq!(read_ports("7740"), Ok((7740, 7740)));
        for wrong in ["", "0", "0-9", "9-8", "a-b", "1-70000", "-5"] {
            assert!(read_ports(wrong).is_err(), "{wrong}");
        }
    }
}
