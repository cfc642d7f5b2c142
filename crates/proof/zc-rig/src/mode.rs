//! Modes of scenarios.

use clap::ValueEnum;

/// A mode of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    WriteThrough,
    WriteBack,
}

/// A file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl Mode {
    /// As the configuration has it.
    pub(crate) fn name(self) -> String {
        name(&self)
    }
}

impl FileSystem {
    /// As its tools have it.
    pub(crate) fn name(self) -> String {
        name(&self)
    }
}

fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_configuration_and_tools() {
        assert_eq!(
            Mode::value_variants().iter().map(|mode| mode.name()).collect::<Vec<_>>(),
            ["write-through", "write-back"]
        );
        assert_eq!(FileSystem::Btrfs.name(), "btrfs");
    }
}
