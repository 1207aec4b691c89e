//! Fuzzy matching in the term dictionary: an automaton over terms.

use levenshtein_automata::SINK_STATE;
use tantivy_fst::Automaton;
use tideline_condition::text::Close;

/// Automaton that accepts terms of the form `prefix` + text, where the text passes the edit-distance test `close`.
pub(crate) struct CloseTerm<'a> {
    pub(crate) close: &'a Close,
    pub(crate) prefix: &'a [u8],
}

/// State after reading a part of a term.
#[derive(Clone, Copy)]
pub(crate) enum CloseState {
    /// Number of matched prefix bytes.
    Prefix(usize),
    /// State of the Levenshtein automaton after the prefix.
    Text(u32),
    /// Dead state: no continuation can match.
    Nowhere,
}

impl Automaton for CloseTerm<'_> {
    type State = CloseState;

    fn start(&self) -> CloseState {
        match self.prefix {
            [] => CloseState::Text(self.close.automaton().initial_state()),
            _ => CloseState::Prefix(0),
        }
    }

    fn is_match(&self, state: &CloseState) -> bool {
        match state {
            CloseState::Text(state) => {
                let distance = self.close.automaton().distance(*state);
                self.close.within(distance).is_some()
            }
            CloseState::Prefix(_) | CloseState::Nowhere => false,
        }
    }

    fn can_match(&self, state: &CloseState) -> bool {
        !matches!(state, CloseState::Nowhere | CloseState::Text(SINK_STATE))
    }

    fn accept(&self, state: &CloseState, byte: u8) -> CloseState {
        let automaton = self.close.automaton();
        match *state {
            CloseState::Prefix(at) if self.prefix[at] != byte => CloseState::Nowhere,
            CloseState::Prefix(at) if at + 1 == self.prefix.len() => {
                CloseState::Text(automaton.initial_state())
            }
            CloseState::Prefix(at) => CloseState::Prefix(at + 1),
            CloseState::Text(state) => CloseState::Text(automaton.transition(state, byte)),
            CloseState::Nowhere => CloseState::Nowhere,
        }
    }
}
