//! Numbers of the running kernel (`/proc/sys`) that a chore raises for a while.
//!
//! Where we may not change one, it stays as it is: the chore then runs with less.

/// A number of the system that is raised for a while, where we may; put back at the end.
#[derive(Debug)]
pub struct Sysctl {
    path: &'static str,
    before: Option<String>,
}

impl Sysctl {
    /// Raises the number at `path`, if it is less than wanted.
    pub fn at_least(path: &'static str, wanted: u64) -> Self {
        let found = std::fs::read_to_string(path).unwrap_or_default();
        let enough = found.trim().parse().is_ok_and(|number: u64| number >= wanted);
        let raised = !enough && std::fs::write(path, wanted.to_string()).is_ok();
        let before = raised.then_some(found);
        Self { path, before }
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = std::fs::write(self.path, before);
        }
    }
}
