//! The embedded backend from outside: the contract, restarts, damage, the cold store.

mod cold;
mod conformance;
mod damage;
mod groups;
mod place;
mod restart;
