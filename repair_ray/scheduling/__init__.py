"""Can the cluster hold what a graph or a training asks for, and what is missing while it waits?"""
