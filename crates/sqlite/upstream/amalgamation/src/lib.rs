//! Placeholder target: this manifest only pins where an upstream source comes from.
