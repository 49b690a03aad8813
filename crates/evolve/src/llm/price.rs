//! What tokens cost. A small table of list prices (July 2025, the providers' price pages); `--price` says it where the table does not.

use serde::{Deserialize, Serialize};

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Price {
    pub input: f64,
    pub output: f64,
}

/// By the beginning of a model's name; the longest that fits counts.
const TABLE: [(&str, f64, f64); 19] = [
    ("gpt-4o-mini", 0.15, 0.6),
    ("gpt-4o", 2.5, 10.0),
    ("gpt-4.1-nano", 0.1, 0.4),
    ("gpt-4.1-mini", 0.4, 1.6),
    ("gpt-4.1", 2.0, 8.0),
    ("gpt-5-nano", 0.05, 0.4),
    ("gpt-5-mini", 0.25, 2.0),
    ("gpt-5", 1.25, 10.0),
    ("o3", 2.0, 8.0),
    ("o4-mini", 1.1, 4.4),
    ("claude-opus-4", 15.0, 75.0),
    ("claude-sonnet-4", 3.0, 15.0),
    ("claude-3-7-sonnet", 3.0, 15.0),
    ("claude-3-5-sonnet", 3.0, 15.0),
    ("claude-3-5-haiku", 0.8, 4.0),
    ("gemini-2.5-pro", 1.25, 10.0),
    ("gemini-2.5-flash-lite", 0.1, 0.4),
    ("gemini-2.5-flash", 0.3, 2.5),
    ("gemini-2.0-flash", 0.1, 0.4),
];

impl Price {
    /// The list price of a model, if the table has it.
    pub fn listed(model: &str) -> Option<Price> {
        let name = model.rsplit('/').next().unwrap_or(model);
        let fits = TABLE.iter().filter(|(begin, ..)| name.starts_with(begin));
        fits.max_by_key(|(begin, ..)| begin.len()).map(|(_, input, output)| Price { input: *input, output: *output })
    }

    pub fn of(&self, input: u64, output: u64) -> f64 {
        (input as f64 * self.input + output as f64 * self.output) / 1e6
    }
}

impl std::str::FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Price, String> {
        let wrong = || "write IN,OUT: US dollars for a million tokens, as 3,15".to_string();
        let (input, output) = text.split_once(',').ok_or_else(wrong)?;
        let number = |t: &str| t.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0).ok_or_else(wrong);
        Ok(Price { input: number(input)?, output: number(output)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices() {
        assert_eq!(Price::listed("gpt-4o-mini-2024-07-18").unwrap().input, 0.15);
        assert_eq!(Price::listed("openai/gpt-4o").unwrap().output, 10.0);
        assert_eq!(Price::listed("llama3"), None);
        assert_eq!("3,15".parse::<Price>().unwrap().of(1_000_000, 100_000), 4.5);
        for wrong in ["", "3", "a,b", "-1,2", "inf,1"] {
            assert!(wrong.parse::<Price>().is_err(), "{wrong}");
        }
    }
}
