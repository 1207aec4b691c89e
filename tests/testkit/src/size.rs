//! Size of tests that have a short and a slow form.

/// Returns true if `TIDELINE_SLOW=1`, which selects the slow form of every test.
///
/// # Panics
///
/// Panics if the variable is neither `0` nor `1` nor empty.
pub fn is_slow() -> bool {
    match std::env::var("TIDELINE_SLOW").as_deref() {
        Ok("1") => true,
        Ok("0" | "") | Err(_) => false,
        Ok(other) => panic!("TIDELINE_SLOW={other} is neither 0 nor 1"),
    }
}

/// Returns how often a test repeats its work: the environment variable if set, else `slow` in the slow run
/// ([`is_slow`]), else `short`.
///
/// # Panics
///
/// Panics if the variable is not a number. If it is not set, panics as [`is_slow`] does.
pub fn rounds(variable: &str, short: usize, slow: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) if is_slow() => slow,
        Err(_) => short,
    }
}
