//! The bench that a case runs on: the place, the command `nonic`, the wheels, and counters that tell whether nonic was used.

use super::wheels::Wheels;
use crate::tools::connected;
use crate::tools::pair::fresh_port;
use std::path::Path;
use std::process::Command;
use testbed::run_as::RunAs;
use testbed::topology::Topology;

/// Where, and with what.
pub(crate) struct Bench<'a> {
    pub(crate) topology: Topology<'a>,
    pub(crate) nonic: &'a Path,
    pub(crate) wheels: Option<&'a Wheels>,
}

impl Bench<'_> {
    /// A command on the host of servers.
    pub(crate) fn server(&self, line: &str) -> Command {
        self.command(&self.topology.server, line)
    }

    /// A command on the host of clients.
    pub(crate) fn client(&self, line: &str) -> Command {
        self.command(&self.topology.client, line)
    }

    fn command(&self, run_as: &RunAs<'_>, line: &str) -> Command {
        let line = self.fill_in(line);
        connected::command(&self.topology, self.nonic, run_as, &line, fresh_port())
    }

    /// A line with `{venv}`, the folder of the wheels.
    pub(super) fn fill_in(&self, line: &str) -> String {
        match self.wheels {
            Some(wheels) => line.replace("{venv}", &wheels.folder().display().to_string()),
            None => line.to_owned(),
        }
    }
}
