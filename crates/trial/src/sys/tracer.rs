//! The tracer for x86_64: seccomp chooses the stops, ptrace answers them.

use super::{Answer, Moment, Stop};
use libc::{c_int, c_long, c_void, pid_t};
use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

const AUDIT_ARCH_X86_64: u32 = 0xC000_003E;
/// Offsets in `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
/// A path is at most this long, its end included.
const PATH_BYTES_MAX: usize = 4096;
const PAGE_BYTES: u64 = 4096;

/// Runs a program to its end on this thread and returns its wait status. Each time it is about to make one of `calls`,
/// `each` decides; `started` hears its process id before it runs.
///
/// # Errors
/// When the program cannot be started or traced.
pub fn trace(
    mut command: Command,
    calls: &[i64],
    started: impl FnOnce(u32),
    each: &mut dyn FnMut(&Stop) -> Answer,
) -> io::Result<i32> {
    let filter = filter(calls);
    // SAFETY: between fork and exec the closure makes system calls on memory that was allocated before the fork.
    unsafe {
        command.pre_exec(move || {
            checked(c_long::from(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)))?;
            checked(c_long::from(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))?;
            checked(libc::ptrace(libc::PTRACE_TRACEME, 0, std::ptr::null_mut::<c_void>(), 0))?;
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
            checked(c_long::from(libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                std::ptr::from_ref(&program),
            )))
        });
    }
    let leader = command.spawn()?.id() as pid_t;
    started(leader as u32);
    let traced = follow(leader, each);
    if traced.is_err() {
        kill(leader);
        let mut status = 0;
        // SAFETY: waits for our own child and writes to `status`.
        unsafe { libc::waitpid(leader, &mut status, libc::__WALL) };
    }
    traced
}

fn follow(leader: pid_t, each: &mut dyn FnMut(&Stop) -> Answer) -> io::Result<i32> {
    let status = wait(leader)?.1;
    if !libc::WIFSTOPPED(status) {
        return Ok(status);
    }
    let options = libc::PTRACE_O_EXITKILL
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC;
    // SAFETY: the thread is stopped and ours; the options are passed by value.
    checked(unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, leader, 0, options) })?;
    go_on(leader, libc::PTRACE_CONT, 0);
    // The lengths that threads passed in the calls that were shortened and have not returned.
    let mut shortened: HashMap<pid_t, u64> = HashMap::new();
    loop {
        let (thread, status) = wait(-1)?;
        if !libc::WIFSTOPPED(status) {
            if thread == leader {
                return Ok(status);
            }
            continue;
        }
        let signal = libc::WSTOPSIG(status);
        let event = status >> 16;
        if event == libc::PTRACE_EVENT_SECCOMP {
            before(leader, thread, each, &mut shortened);
        } else if signal == libc::SIGTRAP | 0x80 {
            match shortened.remove(&thread) {
                Some(length) => give_length_back(thread, length),
                None => after(leader, thread, each),
            }
        } else if event != 0 || signal == libc::SIGSTOP {
            // A new thread starts with a stop that is not for it; nobody stops a traced program.
            go_on(thread, libc::PTRACE_CONT, 0);
        } else {
            go_on(thread, libc::PTRACE_CONT, signal);
        }
    }
}

fn before(leader: pid_t, thread: pid_t, each: &mut dyn FnMut(&Stop) -> Answer, shortened: &mut HashMap<pid_t, u64>) {
    let Some(mut registers) = registers(thread) else { return };
    let stop = stop(thread, &registers, Moment::Before);
    match each(&stop) {
        Answer::GoOn => go_on(thread, libc::PTRACE_CONT, 0),
        Answer::StopAfter => go_on(thread, libc::PTRACE_SYSCALL, 0),
        Answer::Kill => kill_all(leader, thread),
        Answer::Fail(errno) => {
            // The kernel skips a call with the number -1 and returns what the register holds.
            registers.orig_rax = u64::MAX;
            registers.rax = (-i64::from(errno)) as u64;
            set_registers(thread, &registers);
            go_on(thread, libc::PTRACE_CONT, 0);
        }
        Answer::Shorten(length) => {
            shortened.insert(thread, registers.rdx);
            registers.rdx = length;
            set_registers(thread, &registers);
            go_on(thread, libc::PTRACE_SYSCALL, 0);
        }
    }
}

/// No call of the kernel changes the register of its third argument, and compiled code goes by that: with another length
/// in it the program would count wrongly, and its fault would be ours.
fn give_length_back(thread: pid_t, length: u64) {
    if let Some(mut registers) = registers(thread) {
        registers.rdx = length;
        set_registers(thread, &registers);
    }
    go_on(thread, libc::PTRACE_CONT, 0);
}

fn after(leader: pid_t, thread: pid_t, each: &mut dyn FnMut(&Stop) -> Answer) {
    let Some(registers) = registers(thread) else { return };
    let stop = stop(thread, &registers, Moment::After(registers.rax as i64));
    match each(&stop) {
        Answer::Kill => kill_all(leader, thread),
        _ => go_on(thread, libc::PTRACE_CONT, 0),
    }
}

fn stop(thread: pid_t, registers: &libc::user_regs_struct, moment: Moment) -> Stop {
    let r = registers;
    let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
    Stop { thread: thread as u32, number: r.orig_rax as i64, arguments, moment }
}

/// The text at an address of the traced program, without its final NUL.
pub fn text_at(thread: u32, address: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut at = address;
    while at != 0 && text.len() < PATH_BYTES_MAX {
        let mut piece = [0u8; PAGE_BYTES as usize];
        // What lies behind the page's end may not be there.
        let length = (PAGE_BYTES - at % PAGE_BYTES) as usize;
        let here = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: length };
        let there = libc::iovec { iov_base: at as *mut c_void, iov_len: length };
        // SAFETY: `here` describes `piece`; the kernel checks the other process's addresses.
        let read = unsafe { libc::process_vm_readv(thread as pid_t, &here, 1, &there, 1, 0) };
        let read = usize::try_from(read).ok().filter(|read| *read > 0)?;
        if let Some(end) = piece[..read].iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&piece[..end]);
            return Some(text);
        }
        text.extend_from_slice(&piece[..read]);
        at += read as u64;
    }
    None
}

/// `None` when the thread was killed meanwhile; its end is told by the next wait.
fn registers(thread: pid_t) -> Option<libc::user_regs_struct> {
    let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
    // SAFETY: on success the kernel fills the whole structure.
    unsafe {
        let got = libc::ptrace(libc::PTRACE_GETREGS, thread, std::ptr::null_mut::<c_void>(), registers.as_mut_ptr());
        (got == 0).then(|| registers.assume_init())
    }
}

fn set_registers(thread: pid_t, registers: &libc::user_regs_struct) {
    let none = std::ptr::null_mut::<c_void>();
    // SAFETY: the kernel reads one structure. A thread that was killed meanwhile has no registers to set.
    unsafe { libc::ptrace(libc::PTRACE_SETREGS, thread, none, std::ptr::from_ref(registers)) };
}

/// Lets a stopped thread run; one that was killed meanwhile cannot, and needs not.
fn go_on(thread: pid_t, how: libc::c_uint, signal: c_int) {
    // SAFETY: no memory is passed.
    unsafe { libc::ptrace(how, thread, std::ptr::null_mut::<c_void>(), c_long::from(signal)) };
}

/// Also the program that the thread belongs to, where the leader started another.
fn kill_all(leader: pid_t, thread: pid_t) {
    kill(leader);
    kill(thread);
}

fn kill(leader: pid_t) {
    // SAFETY: no memory is passed; the process is ours and not yet waited for, so the number is its own.
    unsafe { libc::kill(leader, libc::SIGKILL) };
}

/// Waits for a child or traced thread of this thread.
fn wait(which: pid_t) -> io::Result<(pid_t, c_int)> {
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes to `status`.
        let found = unsafe { libc::waitpid(which, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        if found >= 0 {
            return Ok((found, status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Stops at `calls`, lets everything else through.
fn filter(calls: &[i64]) -> Vec<libc::sock_filter> {
    assert!(calls.len() < 250, "a jump of the filter reaches 255 instructions");
    let instruction = |code: u32, jt: usize, k: u32| libc::sock_filter { code: code as u16, jt: jt as u8, jf: 0, k };
    let load = |offset| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, offset);
    let jump_if = |value, over| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, over, value);
    let end = |verdict| instruction(libc::BPF_RET | libc::BPF_K, 0, verdict);
    let mut program = vec![load(ARCHITECTURE_OFFSET), jump_if(AUDIT_ARCH_X86_64, 1), end(libc::SECCOMP_RET_ALLOW)];
    program.push(load(NUMBER_OFFSET));
    for (i, call) in calls.iter().enumerate() {
        program.push(jump_if(*call as u32, calls.len() - i));
    }
    program.push(end(libc::SECCOMP_RET_ALLOW));
    program.push(end(libc::SECCOMP_RET_TRACE));
    program
}

fn checked(returned: c_long) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_call_can_be_made_to_fail_and_the_program_sees_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let mut seen = Vec::new();
        let status =
            trace(shell(&format!("mkdir {} || exit 9", path.display())), &[libc::SYS_mkdir], |_| {}, &mut |s| {
                seen.push(text_at(s.thread, s.arguments[0]).unwrap());
                Answer::Fail(libc::ENOSPC)
            });
        assert_eq!(libc::WEXITSTATUS(status.unwrap()), 9);
        assert_eq!(seen, [path.as_os_str().as_encoded_bytes()]);
        assert!(!path.exists());
    }

    #[test]
    fn a_kill_before_a_call_leaves_nothing_of_it_and_one_after_leaves_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        for (moment, is_there) in [(Moment::Before, false), (Moment::After(0), true)] {
            // The shell makes the directory by a program of its own: children are traced as well.
            let script = format!("mkdir {}; echo never > {}/file", path.display(), path.display());
            let status = trace(shell(&script), &[libc::SYS_mkdir], |_| {}, &mut |stop| match stop.moment {
                at if at == moment => Answer::Kill,
                _ => Answer::StopAfter,
            });
            assert_eq!(libc::WTERMSIG(status.unwrap()), libc::SIGKILL);
            assert_eq!(path.exists(), is_there);
            assert!(!path.join("file").exists());
        }
    }

    #[test]
    fn a_write_can_be_cut_short() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut command = shell(&format!("printf abcdef > {}", path.display()));
        command.env_clear();
        let status = trace(command, &[libc::SYS_write], |_| {}, &mut |stop| match stop.arguments[2] {
            6 => Answer::Shorten(2),
            _ => Answer::GoOn,
        });
        assert!(libc::WIFEXITED(status.unwrap()));
        assert!(std::fs::read(&path).unwrap().starts_with(b"ab"));
    }

    /// Set for the copy of this test program that `a_shortened_call_leaves_its_length_in_its_register` traces.
    const WRITE_TO: &str = "THALWEG_TRIAL_WRITE_TO";

    #[test]
    fn a_shortened_call_leaves_its_length_in_its_register() {
        if let Some(path) = std::env::var_os(WRITE_TO) {
            return write_and_look_at_the_register(&path);
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "a_shortened_call_leaves_its_length_in_its_register";
        command.args([name, "--test-threads=1"]).env(WRITE_TO, &path);
        command.stdout(std::process::Stdio::null());
        let status = trace(command, &[libc::SYS_pwrite64], |_| {}, &mut |stop| match stop.arguments[2] {
            6 => Answer::Shorten(2),
            _ => Answer::GoOn,
        });
        assert_eq!(libc::WEXITSTATUS(status.unwrap()), 0);
        assert_eq!(std::fs::read(&path).unwrap(), b"ab");
    }

    fn write_and_look_at_the_register(path: &std::ffi::OsStr) {
        let file = std::fs::File::create(path).unwrap();
        let (mut written, mut length) = (libc::SYS_pwrite64, 6_u64);
        // SAFETY: pwrite64 reads six bytes of a literal that has six.
        unsafe {
            std::arch::asm!(
                "syscall",
                inlateout("rax") written,
                in("rdi") std::os::fd::AsRawFd::as_raw_fd(&file) as i64,
                in("rsi") b"abcdef".as_ptr(),
                inlateout("rdx") length,
                in("r10") 0_u64,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        assert_eq!((written, length), (2, 6));
    }
}
