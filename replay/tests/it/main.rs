//! Replays of hand-made reels into temporary directories. Needs root or user namespaces.
#![expect(clippy::unwrap_used, reason = "tests")]

mod attributes;
mod bios;
mod border;
mod bounds;
mod calls;
mod contained;
mod data;
mod end_state;
mod files;
mod limits;
mod maps;
mod messages;
mod names;
mod nodes;
mod order;
mod overlaps;
mod pipes;
mod processes;
mod recorded_tree;
mod reel;
mod requests;
mod restored;
mod results;
mod roots;
mod scaled;
mod schedule;
mod sizes;
mod slices;
mod streams;
mod subvolumes;
mod users;
mod verdict;
