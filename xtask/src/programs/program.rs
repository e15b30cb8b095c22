//! A program that cases belong to, and what has to be installed for it.

/// What cases belong to: a heading of the documentation.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The version that the documentation names: what the packages below are on Debian 12, or the wheels.
    pub(crate) version: &'static str,
    /// Debian packages, each with a file that it has.
    pub(crate) packages: &'static [(&'static str, &'static str)],
    /// Python packages with their versions, as pip is given them.
    pub(crate) wheels: &'static [&'static str],
}
