//! `thalweg completions`: what a shell needs to complete the command line.

use crate::exit::Result;
use crate::output;
use clap::Command;
use clap_complete::Shell;
use model::Exit;

/// Print the completions of a shell: bash, zsh or fish
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg completions bash > ~/.local/share/bash-completion/completions/thalweg\n\
\x20   thalweg completions zsh > ~/.zfunc/_thalweg          with `fpath+=~/.zfunc` before `compinit`\n\
\x20   thalweg completions fish > ~/.config/fish/completions/thalweg.fish")]
pub struct Args {
    /// The shell to complete for
    #[arg(value_name = "bash|zsh|fish", value_parser = shell)]
    shell: Shell,
}

/// Those that are tried; the library knows more.
fn shell(text: &str) -> Result<Shell, String> {
    match text {
        "bash" => Ok(Shell::Bash),
        "zsh" => Ok(Shell::Zsh),
        "fish" => Ok(Shell::Fish),
        _ => Err("there are completions for bash, zsh and fish".into()),
    }
}

pub fn run(args: Args, mut program: Command) -> Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, "thalweg", &mut text);
    output::text(&String::from_utf8_lossy(&text));
    Ok(Exit::Done)
}
