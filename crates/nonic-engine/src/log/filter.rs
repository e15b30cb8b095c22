//! The filter of `NONIC_LOG`: a level for everything, and levels for parts.

use nonic_settings::SettingError;
use tracing::{Level, Metadata, level_filters::LevelFilter};

/// The parts that can be named.
const PARTS: [&str; 8] = [
    "device", "qp", "cm", "memory", "link", "direct", "verbs", "request",
];

/// What every target of ours begins with.
const PREFIX: &str = "nonic::";

/// A level for everything, and levels for parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Filter {
    general: LevelFilter,
    parts: Vec<(&'static str, LevelFilter)>,
}

impl Filter {
    /// Reads `warn,qp=debug`.
    pub(super) fn from_setting(setting: &str) -> Result<Self, SettingError> {
        let refuse = || {
            let levels = "off, error, warn, info, debug or trace";
            let expected = format!(
                "{levels}, or one of them for a part, as in warn,qp=debug; parts are {}",
                PARTS.join(", ")
            );
            nonic_settings::LOG.refuse(setting, expected)
        };
        let mut filter = Filter {
            general: LevelFilter::OFF,
            parts: Vec::new(),
        };
        for item in setting.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            match item.split_once('=') {
                None => filter.general = item.parse().map_err(|_| refuse())?,
                Some((part, level)) => {
                    let part = part.strip_prefix(PREFIX).unwrap_or(part);
                    let part = PARTS
                        .into_iter()
                        .find(|known| *known == part)
                        .ok_or_else(refuse)?;
                    filter.parts.push((part, level.parse().map_err(|_| refuse())?));
                }
            }
        }
        Ok(filter)
    }

    /// The most that any part lets through.
    pub(super) fn most(&self) -> LevelFilter {
        let parts = self.parts.iter().map(|(_, level)| *level);
        parts.chain([self.general]).max().unwrap_or(LevelFilter::OFF)
    }

    /// Whether something is let through. What is not ours is not: the subscriber is there for us alone.
    pub(super) fn passes(&self, metadata: &Metadata<'_>) -> bool {
        self.lets_through(metadata.target(), *metadata.level())
    }

    fn lets_through(&self, target: &str, level: Level) -> bool {
        let Some(part) = target.strip_prefix(PREFIX) else {
            return false;
        };
        let named = self.parts.iter().rev().find(|(name, _)| *name == part);
        level <= named.map_or(self.general, |(_, level)| *level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(setting: &str) -> Filter {
        Filter::from_setting(setting).expect("a filter")
    }

    #[test]
    fn a_part_has_its_own_level_and_the_rest_the_general_one() {
        let filter = filter("warn,qp=debug, cm=off");
        assert!(filter.lets_through("nonic::qp", Level::DEBUG));
        assert!(!filter.lets_through("nonic::qp", Level::TRACE));
        assert!(filter.lets_through("nonic::memory", Level::WARN));
        assert!(!filter.lets_through("nonic::memory", Level::INFO));
        assert!(!filter.lets_through("nonic::cm", Level::ERROR));
        assert!(!filter.lets_through("hyper::proto", Level::ERROR), "not ours");
        assert_eq!(filter.most(), LevelFilter::DEBUG);
    }

    #[test]
    fn without_a_general_level_the_rest_is_silent() {
        let filter = filter("nonic::qp=info");
        assert!(filter.lets_through("nonic::qp", Level::INFO));
        assert!(!filter.lets_through("nonic::cm", Level::ERROR));
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        for setting in ["loud", "qp=loud", "qpp=warn", "warn,=info"] {
            let refused = Filter::from_setting(setting).expect_err("not known").to_string();
            assert!(
                refused.contains("NONIC_LOG") && refused.contains("qp"),
                "{refused}"
            );
        }
        assert_eq!(filter("off").most(), LevelFilter::OFF);
    }
}
