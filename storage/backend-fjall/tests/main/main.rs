//! The embedded backend from outside: the contract, restarts, damage.

mod conformance;
mod damage;
mod place;
mod restart;
