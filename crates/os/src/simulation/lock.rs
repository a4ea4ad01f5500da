//! A mutex and a condition whose waiting is the scheduler's.
//!
//! Each wraps the standard library's, which does the work outside a world. Inside one, only the thread that may run
//! touches it, so that the inner lock is never waited for. A lock that a dying thread left is not poisoned: what it
//! guarded is gone with its host.

use super::scheduler::{self, Wait};
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError};
use std::time::Duration;

#[derive(Default, Debug)]
pub struct Mutex<T: ?Sized> {
    inner: std::sync::Mutex<T>,
}

pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    /// `None` only while it is being given back.
    inner: Option<std::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { inner: std::sync::Mutex::new(value) }
    }

    pub fn into_inner(self) -> LockResult<T> {
        Ok(self.inner.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// # Errors
    /// Never; the type is the standard library's.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let inner = match scheduler::current() {
            None => self.inner.lock().unwrap_or_else(PoisonError::into_inner),
            Some(context) => {
                context.world.step(&context);
                loop {
                    match self.inner.try_lock() {
                        Ok(guard) => break guard,
                        Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                        Err(TryLockError::WouldBlock) => _ = context.world.wait(&context, self.key(), None),
                    }
                }
            }
        };
        Ok(MutexGuard { lock: self, inner: Some(inner) })
    }

    /// # Errors
    /// Never; the type is the standard library's.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        Ok(self.inner.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    fn key(&self) -> Wait {
        Wait::Lock(std::ptr::from_ref(&self.inner).cast::<()>() as usize)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("held until it is dropped")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("held until it is dropped")
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.inner.take().is_some()
            && let Some(context) = scheduler::current()
        {
            context.world.wake(&self.lock.key(), usize::MAX);
        }
    }
}

/// Whether a wait ended by its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

#[derive(Default, Debug)]
pub struct Condvar {
    inner: std::sync::Condvar,
}

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar { inner: std::sync::Condvar::new() }
    }

    fn key(&self) -> Wait {
        Wait::Condition(std::ptr::from_ref(&self.inner).cast::<()>() as usize)
    }

    /// # Errors
    /// Never; the type is the standard library's.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        Ok(self.wait_for(guard, None).unwrap_or_else(PoisonError::into_inner).0)
    }

    /// # Errors
    /// Never; the type is the standard library's.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        patience: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_for(guard, Some(patience))
    }

    fn wait_for<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        patience: Option<Duration>,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let lock = guard.lock;
        if let Some(context) = scheduler::current() {
            // Nobody else runs before `wait` gives way, so that no wake-up is lost in between.
            drop(guard);
            let is_timed_out = context.world.wait(&context, self.key(), patience);
            let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok((guard, WaitTimeoutResult(is_timed_out)));
        }
        let inner = guard.inner.take().expect("held until it is dropped");
        drop(guard);
        let (inner, is_timed_out) = match patience {
            None => (self.inner.wait(inner).unwrap_or_else(PoisonError::into_inner), false),
            Some(patience) => {
                let waited = self.inner.wait_timeout(inner, patience).unwrap_or_else(PoisonError::into_inner);
                (waited.0, waited.1.timed_out())
            }
        };
        Ok((MutexGuard { lock, inner: Some(inner) }, WaitTimeoutResult(is_timed_out)))
    }

    pub fn notify_all(&self) {
        match scheduler::current() {
            Some(context) => context.world.wake(&self.key(), usize::MAX),
            None => self.inner.notify_all(),
        }
    }

    pub fn notify_one(&self) {
        match scheduler::current() {
            Some(context) => context.world.wake(&self.key(), 1),
            None => self.inner.notify_one(),
        }
    }
}
