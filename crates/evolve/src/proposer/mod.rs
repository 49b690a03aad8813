//! Who makes proposals. Those of the loop's own are pure functions of the state; those outside are asked by the driver.

pub mod agent;
pub mod levers;
pub mod outside;
pub mod replay;
mod surrogate;
