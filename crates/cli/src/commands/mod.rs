//! One file for each command.

pub mod serve;
mod stdio;
pub mod endpoint;
pub mod ticket;
pub mod contract;
pub mod host;
pub mod cp;
pub mod sync;
pub mod stage;
pub mod filter;
pub mod follow;
pub mod publish;
pub mod fetch;
pub mod job;
#[cfg(feature = "hub")]
pub mod hub;
#[cfg(feature = "hub")]
pub mod submit;
#[cfg(feature = "hub")]
pub mod run;
#[cfg(feature = "hub")]
pub mod batch;
#[cfg(feature = "hub")]
pub mod queue;
#[cfg(feature = "hub")]
pub mod schedule;
#[cfg(feature = "hub")]
pub mod token;
#[cfg(feature = "hub")]
pub mod rule;
#[cfg(feature = "hub")]
pub mod console;
pub mod mv;
pub mod ls;
pub mod tree;
pub mod du;
pub mod stat;
pub mod cat;
pub mod mkdir;
pub mod rm;
pub mod uploads;
pub mod buffer;
pub mod check;
pub mod sum;
pub mod top;
pub mod log;
pub mod doctor;
pub mod plan;
pub mod calibrate;
pub mod config;
pub mod completions;
pub mod man;
mod matrix;
#[cfg(feature = "bench")]
pub mod generate;
#[cfg(feature = "bench")]
pub mod demo;
#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "lab")]
pub mod lab;

use crate::args::{Cli, Command, program};
use crate::exit::Result;
use model::Exit;

pub fn run(cli: Cli) -> Result<Exit> {
    match cli.command {
        Command::Serve(args) => serve::run(args.into_inner()),
        Command::Endpoint(args) => endpoint::run(args.into_inner()),
        Command::Ticket(args) => ticket::run(args.into_inner()),
        Command::Contract(args) => contract::run(args.into_inner()),
        Command::Host(args) => host::run(args.into_inner()),
        Command::Cp(args) => cp::run(args.into_inner()),
        Command::Sync(args) => sync::run(args.into_inner()),
        Command::Stage(args) => stage::run(args.into_inner()),
        Command::Job(args) => job::run(args.into_inner()),
        #[cfg(feature = "hub")]
        Command::Hub(args) => hub::run(args.into_inner()),
        #[cfg(feature = "hub")]
        Command::Submit(args) => submit::run(args.into_inner()),
        #[cfg(feature = "hub")]
        Command::Run(args) => run::run(args.into_inner()),
        #[cfg(feature = "hub")]
        Command::Batch(args) => batch::run(args.into_inner()),
        #[cfg(feature = "hub")]
        Command::Queue(args) => queue::run(args.into_inner()),
        #[cfg(feature = "hub")]
        Command::Schedule(args) => schedule::run(args.into_inner()),
        #[cfg(feature = "hub")]
        Command::Token(args) => token::run(args.into_inner()),
        #[cfg(feature = "hub")]
        Command::Rule(args) => rule::run(args.into_inner()),
        #[cfg(feature = "hub")]
        Command::Console(args) => console::run(args.into_inner()),
        Command::Follow(args) => follow::run(args.into_inner()),
        Command::Publish(args) => publish::run(&args),
        Command::Fetch(args) => fetch::run(&args),
        Command::Filter(args) => filter::run(args.into_inner()),
        Command::Mv(args) => mv::run(args.into_inner()),
        Command::Ls(args) => ls::run(args.into_inner()),
        Command::Tree(args) => tree::run(args.into_inner()),
        Command::Du(args) => du::run(args.into_inner()),
        Command::Stat(args) => stat::run(args.into_inner()),
        Command::Cat(args) => cat::run(args.into_inner()),
        Command::Mkdir(args) => mkdir::run(args.into_inner()),
        Command::Rm(args) => rm::run(args.into_inner()),
        Command::Check(args) => check::run(args.into_inner()),
        Command::Sum(args) => sum::run(args.into_inner()),
        Command::Uploads(args) => uploads::run(args.into_inner()),
        Command::Buffer(args) => buffer::run(args.into_inner()),
        Command::Top(args) => top::run(args.into_inner()),
        Command::Log(args) => log::run(args.into_inner()),
        Command::Doctor(args) => doctor::run(args.into_inner(), cli.globals.profile.as_deref()),
        Command::Plan(args) => plan::run(args.into_inner()),
        Command::Calibrate(args) => crate::calibrating::run(&args, cli.globals.profile.as_deref()),
        Command::Config(args) => config::run(args.into_inner(), &cli.globals, &program()),
        Command::Completions(args) => completions::run(args.into_inner(), program()),
        Command::Man(args) => man::run(args.into_inner(), program()),
        Command::Matrix => matrix::run(&program()),
        #[cfg(feature = "bench")]
        Command::Gen(args) => generate::run(args.into_inner()),
        #[cfg(feature = "bench")]
        Command::Demo(args) => demo::run(args.into_inner()),
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::run(args.into_inner()),
        #[cfg(feature = "lab")]
        Command::Lab(args) => lab::run(args.into_inner()),
    }
}
