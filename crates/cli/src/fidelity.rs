//! The flags that say what of an object is kept beside its content, with rsync's letters; `cp` and `sync` share them.

use model::Fidelity;

// What is kept besides content.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Metadata")]
pub struct FidelityArgs {
    /// As -p -o -g -D; directories, symbolic links and times are always kept
    #[arg(short, long, env = "THALWEG_ARCHIVE")]
    archive: bool,
    /// Keep all permission bits, whatever the umask [default: the source's, less the umask]
    #[arg(short, long, env = "THALWEG_PERMS")]
    perms: bool,
    /// Keep the owner, by name where both sides know it; needs root, or an endpoint with --super
    #[arg(short, long, env = "THALWEG_OWNER")]
    owner: bool,
    /// Keep the group; ordinary users can do so for groups they are in
    #[arg(short, long, env = "THALWEG_GROUP")]
    group: bool,
    /// Keep owners and groups by number, whatever their names
    #[arg(long, env = "THALWEG_NUMERIC_IDS")]
    numeric_ids: bool,
    /// Keep POSIX access control lists; implies --perms
    #[arg(short = 'A', long, env = "THALWEG_ACLS")]
    acls: bool,
    /// Keep extended attributes: user.* ones, and as root all others
    #[arg(short = 'X', long, env = "THALWEG_XATTRS")]
    xattrs: bool,
    /// Keep hard links: several names of one file remain names of one file
    #[arg(short = 'H', long, env = "THALWEG_HARD_LINKS")]
    hard_links: bool,
    /// Store runs of zeros as holes
    #[arg(short = 'S', long, env = "THALWEG_SPARSE")]
    sparse: bool,
    /// Copy devices; needs root, or an endpoint with --super
    #[arg(long, env = "THALWEG_DEVICES")]
    devices: bool,
    /// Copy FIFOs and sockets
    #[arg(long, env = "THALWEG_SPECIALS")]
    specials: bool,
    /// As --devices --specials
    #[arg(short = 'D', long, env = "THALWEG_SPECIAL_FILES")]
    special_files: bool,
    /// With -a, do not keep permission bits
    #[arg(long, env = "THALWEG_NO_PERMS")]
    no_perms: bool,
    /// With -a, do not keep the owner
    #[arg(long, env = "THALWEG_NO_OWNER")]
    no_owner: bool,
    /// With -a, do not keep the group
    #[arg(long, env = "THALWEG_NO_GROUP")]
    no_group: bool,
    /// Accepted for habit: times are always kept
    #[arg(short, long, env = "THALWEG_TIMES")]
    times: bool,
    /// Accepted for habit: symbolic links are always copied as links
    #[arg(short, long, env = "THALWEG_LINKS")]
    links: bool,
}

impl FidelityArgs {
    pub fn fidelity(&self) -> Fidelity {
        let specials = self.archive || self.special_files;
        Fidelity {
            owner: (self.archive || self.owner) && !self.no_owner,
            group: (self.archive || self.group) && !self.no_group,
            numeric_ids: self.numeric_ids,
            mode: (self.archive || self.perms) && !self.no_perms || self.acls,
            xattrs: self.xattrs,
            acls: self.acls,
            hard_links: self.hard_links,
            sparse: self.sparse,
            devices: specials || self.devices,
            specials: specials || self.specials,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        fidelity: FidelityArgs,
    }

    fn of(args: &[&str]) -> Fidelity {
        Line::try_parse_from(std::iter::once("x").chain(args.iter().copied())).unwrap().fidelity.fidelity()
    }

    #[test]
    fn letters_mean_what_they_mean_to_rsync() {
        let archive = of(&["-a"]);
        assert_eq!(archive, of(&["-ltpogD"]));
        assert!(archive.owner && archive.group && archive.mode && archive.devices && archive.specials);
        assert!(!archive.xattrs && !archive.acls && !archive.hard_links && !archive.sparse);
        let all = of(&["-aHAXS", "--numeric-ids"]);
        assert!(all.xattrs && all.acls && all.hard_links && all.sparse && all.numeric_ids);
        assert_eq!(of(&["-a", "--no-owner", "--no-group"]), of(&["-pD"]));
        assert!(of(&["-A"]).mode && of(&["-t", "-l"]).is_none());
        assert_eq!(of(&["-D"]), of(&["--devices", "--specials"]));
    }
}
