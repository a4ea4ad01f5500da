//! lftp, mirroring to vsftpd over FTP.
//!
//! Settings: sixteen files at once (four where they are large), commands pipelined, no modes and times afterwards, passive
//! data connections. Clear text without digests: the fastest it can do. FTP opens a connection for each file.

use std::path::Path;
use std::process::Command;

use super::{Bed, Class, Guards, Set, Tool, folder_name, found_program, output_of, version_of};
use crate::error::{Error, Result};
use crate::process::Ready;

const PORT: u16 = 2121;
const PACKAGE: &str = "vsftpd";
const SETTINGS: &str = "set cmd:fail-exit yes; set net:max-retries 2; set net:timeout 30; set dns:order inet; \
    set ftp:sync-mode off; set ftp:use-site-utime no; set ftp:use-site-utime2 no; set ftp:use-mdtm off; \
    set ftp:use-allo no; set ftp:ssl-allow no; set mirror:set-permissions off; set xfer:log no";

pub struct Lftp;

impl Tool for Lftp {
    fn name(&self) -> &str {
        "lftp"
    }

    fn class(&self) -> Class {
        Class::Network
    }

    fn protection(&self) -> &str {
        "clear text, no digest"
    }

    fn guards(&self) -> Guards {
        Guards::default()
    }

    fn steps(&self) -> Vec<&str> {
        vec!["install lftp and vsftpd", "write the server's configuration", "start vsftpd"]
    }

    fn version(&self) -> Result<String> {
        let client = version_of(Path::new("lftp"), "--version", "lftp")?;
        let server = found_program("vsftpd", PACKAGE)?;
        // It writes its version to the control connection, which is its standard input.
        let said = output_of(Command::new("sh").args(["-c", r#""$0" -v 0>&1"#]).arg(server)).unwrap_or_default();
        Ok(format!("{client}, {}", said.trim()))
    }

    fn server(&self, bed: &Bed) -> Result<Option<(Command, Ready)>> {
        let empty = bed.workspace.join("vsftpd-empty");
        std::fs::create_dir_all(&empty).map_err(Error::io("create", &empty))?;
        let configuration = bed.workspace.join("vsftpd.conf");
        // The user must have a home that exists, even though nobody goes there; this one's does on every Linux system.
        let text = format!(
            "listen=YES\nbackground=NO\nlisten_address={}\nlisten_port={PORT}\nanonymous_enable=YES\nlocal_enable=NO\n\
             write_enable=YES\nanon_root={}\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\n\
             anon_other_write_enable=YES\nanon_umask=022\nftp_username=daemon\nno_anon_password=YES\n\
             secure_chroot_dir={}\nseccomp_sandbox=NO\nmax_per_ip=0\nmax_clients=0\nxferlog_enable=NO\n",
            bed.server_address(),
            bed.delivered.display(),
            empty.display(),
        );
        std::fs::write(&configuration, text).map_err(Error::io("write", &configuration))?;
        let mut command = Command::new(found_program("vsftpd", PACKAGE)?);
        command.arg(configuration);
        Ok(Some((command, Ready::Listens(PORT))))
    }

    fn client(&self, bed: &Bed, set: &Set, delivery: &Path) -> Command {
        let parallel = if set.has_large_files() { 4 } else { 16 };
        let script = format!(
            "{SETTINGS}; open -p {PORT} {}; mirror -R --parallel={parallel} --no-perms --no-umask {}/ {}/",
            bed.server_address(),
            set.source.display(),
            folder_name(delivery),
        );
        let mut command = Command::new("lftp");
        // A home of the run's, so that the user's settings are not read.
        command.arg("--norc").args(["-c", &script]).env("HOME", bed.workspace).env_remove("LFTP_HOME");
        command
    }
}
