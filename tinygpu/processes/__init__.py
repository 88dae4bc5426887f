"""Processes of our own: what may crash, hang or be killed is done in one, and costs its answer and nothing else.

One protocol for all of them. A process answers requests, one after another (`Line` is its side, `Worker` ours);
requests and answers are Python values. A request has a limit in seconds. Where the process ends, or is late, whoever
asked is told how (`Ended`, `Late`), and the process and all that it started are gone. A process ends with the one that
started it, however that ends, since the pipe between them then does. Ctrl-C is for whoever asks: the processes are in
sessions of their own. Windows has no sessions: there Ctrl-C reaches the processes, and what they started outlives them.
"""
