//! How a program is started: in which network namespace, as which user, how confined, and with which variables more.
//!
//! It needs root; without it, [`RunAs::default`] is all there is: our namespace and our user.

use crate::confined::Confinement;
use crate::namespace::Namespace;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Before a command: runs it as the user nobody.
pub const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// In which namespace, as which user, and with which variables more.
#[derive(Copy, Clone, Debug, Default)]
pub struct RunAs<'a> {
    /// Ours, if there is none.
    pub namespace: Option<&'a Namespace>,
    /// As the user nobody, if not as ours.
    pub as_nobody: bool,
    /// As a container's defaults leave it.
    pub confinement: Option<&'a Confinement>,
    /// Beside the variables that we have.
    pub environment: &'a [(&'static str, String)],
}

impl RunAs<'_> {
    /// A command that runs `program` here.
    pub fn command(&self, program: &Path) -> Command {
        let mut words: Vec<OsString> = Vec::new();
        let enter = self.namespace.map(Namespace::enter).unwrap_or_default();
        words.extend(enter.into_iter().map(OsString::from));
        words.extend(self.confinement.map(Confinement::words).unwrap_or_default());
        if self.as_nobody {
            words.extend(AS_NOBODY.map(OsString::from));
        }
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}
