"""Wrong and made-up objects beside a healthy Model, on a world whose nodes are virtual."""
