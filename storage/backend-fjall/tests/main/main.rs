//! Integration tests of the embedded backend: the contract, restarts, damage, groups, parts, the cold store.

mod cold;
mod conformance;
mod damage;
mod groups;
mod parts;
mod restart;
mod test_folder;
