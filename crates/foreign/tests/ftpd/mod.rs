//! FTP servers of others, each for itself in a directory of its own.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Globus,
    /// Has neither facts nor blocks, and lets no modes be set.
    Vsftpd,
}

pub struct Ftpd {
    child: Child,
    pub port: u16,
    pub kind: Kind,
    dir: tempfile::TempDir,
}

impl Drop for Ftpd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    places.map(|place| place.join(program)).find(|path| path.exists())
}

impl Ftpd {
    /// `None` where it is not installed, or not for this user to run.
    pub fn start(kind: Kind) -> Option<Ftpd> {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        open(dir.path(), 0o755);
        for below in ["top", "top/pub", "empty"] {
            std::fs::create_dir(dir.path().join(below)).unwrap();
        }
        open(&dir.path().join("top/pub"), 0o777);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = match kind {
            Kind::Globus => globus(port)?,
            Kind::Vsftpd => vsftpd(port, dir.path())?,
        };
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let mut server = Ftpd { child, port, kind, dir };
        let until = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let is_over = server.child.try_wait().unwrap().is_some() || Instant::now() > until;
            let log = || std::fs::read_to_string(server.dir.path().join("log")).unwrap_or_default();
            assert!(!is_over, "{kind:?} does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    /// Where files lie, and the path that the server has for it.
    pub fn top(&self) -> (PathBuf, String) {
        let top = self.dir.path().join("top/pub");
        let named = if self.kind == Kind::Vsftpd { "/pub".to_owned() } else { top.display().to_string() };
        (top, named)
    }
}

fn globus(port: u16) -> Option<Command> {
    let program = found("globus-gridftp-server");
    if !needs::met(program.is_some(), "no globus-gridftp-server is installed") {
        return None;
    }
    let mut command = Command::new(program?);
    command.args(["-aa", "-home-dir", "/", "-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"]);
    command.args(["-p", &port.to_string()]);
    if needs::root() {
        command.args(["-anonymous-user", "nobody", "-allow-disabled-login"]);
    }
    Some(command)
}

fn vsftpd(port: u16, dir: &Path) -> Option<Command> {
    let program = found("vsftpd");
    if !needs::met(program.is_some() && needs::root(), "no vsftpd is installed, or the user is not root") {
        return None;
    }
    let text = format!(
        "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\nanonymous_enable=YES\nanon_root={dir}/top\n\
         anon_upload_enable=YES\nanon_mkdir_write_enable=YES\nanon_other_write_enable=YES\nanon_umask=022\n\
         anon_world_readable_only=NO\nwrite_enable=YES\nlocal_enable=NO\nno_anon_password=YES\n\
         secure_chroot_dir={dir}/empty\nxferlog_enable=NO\nmdtm_write=YES\n",
        dir = dir.display()
    );
    let path = dir.join("vsftpd.conf");
    std::fs::write(&path, text).unwrap();
    let mut command = Command::new(program?);
    command.arg(path);
    Some(command)
}
