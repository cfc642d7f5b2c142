//! Parses arbitrary bytes as a configuration file: no panic, mistakes are bounded and each has its line, and a printed
//! configuration parses to the same.

use zc_config::{Config, ConfigError, diff_live};

/// Most mistakes reported at once.
const MISTAKES_MAX: usize = 50;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    match Config::parse(text, "f") {
        Ok(config) => {
            let shown = config.effective_toml();
            match Config::parse(&shown, "f") {
                Ok(again) => {
                    assert_eq!(again, config);
                    assert!(diff_live(&config, &again).is_empty());
                }
                Err(error) => panic!("{error}\n{shown}"),
            }
        }
        Err(ConfigError::Mistakes(mistakes)) => {
            assert!((1..=MISTAKES_MAX).contains(&mistakes.len()));
            let lines = text.matches('\n').count() + 1;
            for mistake in &mistakes {
                assert!((1..=lines).contains(&mistake.line), "{mistake}");
                assert!(!mistake.text.contains('\n'), "{mistake}");
            }
        }
        Err(error) => panic!("{error}"),
    }
}
