//! The flags for hosts that are reached over ssh, shared by every command that takes a location.

use ssh::{SshOptions, read_ports};

/// How hosts are reached over ssh
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SshArgs {
    /// The ssh program and its arguments, such as 'ssh -p 2222' [default: ssh]
    #[arg(long, value_name = "COMMAND", env = "THALWEG_SSH", help_heading = "Over ssh")]
    ssh: Option<String>,
    /// Where thalweg is on the other host [default: its search path, then ~/.local/bin, ~/bin, ~/.cargo/bin]
    #[arg(long, value_name = "PATH", env = "THALWEG_REMOTE_PROGRAM", help_heading = "Over ssh")]
    remote_program: Option<String>,
    /// Copy this program to the user's cache directory on the other host if it is missing there, and use it
    #[arg(long, env = "THALWEG_DEPLOY", conflicts_with = "remote_program", help_heading = "Over ssh")]
    deploy: bool,
    /// Send everything through the ssh connection, without trying to reach a port
    #[arg(long, env = "THALWEG_TUNNEL", help_heading = "Over ssh")]
    tunnel: bool,
    /// Ports that the other host may listen on, such as 7740-7760 if a firewall allows only these [default: any]
    #[arg(long, value_name = "FIRST-LAST", value_parser = read_ports, env = "THALWEG_PORTS", help_heading = "Over ssh")]
    ports: Option<(u16, u16)>,
    /// Take NAME:PATH only for a known endpoint, never for a host
    #[arg(long, env = "THALWEG_NO_SSH", help_heading = "Over ssh")]
    no_ssh: bool,
}

/// Flags that only the side that starts ssh understands.
pub const NAMES: [&str; 6] = ["ssh", "remote-program", "deploy", "tunnel", "ports", "no-ssh"];

impl SshArgs {
    /// For commands that know no other of them.
    pub fn of_command(ssh: Option<String>) -> SshArgs {
        SshArgs { ssh, ..SshArgs::default() }
    }

    /// What they say, kept for `sftp://` too.
    pub fn options(&self) -> SshOptions {
        let options = SshOptions {
            command: self.ssh.clone(),
            remote_program: self.remote_program.clone(),
            deploy: self.deploy,
            is_tunnel_only: self.tunnel,
            ports: self.ports,
        };
        #[cfg(feature = "foreign")]
        crate::transfer::sftp::reach_by(&options);
        options
    }

    /// Whether a name that no endpoint has is taken for a host.
    pub fn is_allowed(&self) -> bool {
        !self.no_ssh
    }
}
