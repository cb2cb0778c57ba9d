"""A fitted model behind an address: `gpnn serve model.gpnn` (extra gpnn[serve]).

`app.py` has the routes, `models.py` what is served and how a replaced file is picked up, `bodies.py` how questions are
read and answers written, `batching.py` how small questions are answered together, `server.py` the processes.
"""
