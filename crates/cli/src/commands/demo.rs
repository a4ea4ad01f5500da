//! demo
#[derive(clap::Args, Debug)]
pub struct Args {}
pub fn run(_: Args) -> crate::exit::Result<model::Exit> { Ok(model::Exit::Failed) }
